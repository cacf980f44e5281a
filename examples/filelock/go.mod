module github.com/distlock-go/distlock/examples/filelock

go 1.26.0

require github.com/distlock-go/distlock v0.0.0

require github.com/anishathalye/porcupine v1.3.1 // indirect

// The example is built with the tree that it stands in. A driver of your own has
// no such line.
replace github.com/distlock-go/distlock => ../..
