package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/patterns"
)

// checkSharing looks at the flags that let several in.
func (o *runOptions) checkSharing(f *pflag.FlagSet) error {
	ways := 0
	for _, name := range []string{"permits", "shared", "exclusive"} {
		if f.Changed(name) {
			ways++
		}
	}
	rw := o.shared || o.exclusive
	switch {
	case ways > 1:
		return errors.New("--permits, --shared and --exclusive exclude each other")
	case f.Changed("permits") && o.permits < 1:
		return fmt.Errorf("--permits is %d, allowed is 1 or more", o.permits)
	case f.Changed("readers") && !rw:
		return errors.New("--readers is for --shared and --exclusive")
	case rw && o.readers < 1:
		return fmt.Errorf("--readers is %d, allowed is 1 or more", o.readers)
	case ways > 0 && (o.oncePer > 0 || o.minHold > 0):
		return errors.New("--once-per and --min-hold keep a name for one holder, and exclude --permits, --shared and --exclusive")
	}
	return nil
}

// sharing returns l, or what lets as many in as the flags say.
func (o *runOptions) sharing(l distlock.Locker) distlock.Locker {
	switch {
	case o.permits > 0:
		return patterns.Semaphore(l, o.permits)
	case o.shared || o.exclusive:
		read, write := patterns.ReadWrite(l, o.readers)
		if o.shared {
			return read
		}
		return write
	}
	return l
}
