package servers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// enoughRoom is what the folder of a server needs at the most: the log files of MySQL are some hundred megabytes.
const enoughRoom = 500 << 20

// troubled is an error that says what can be done about it.
type troubled struct {
	err    error
	advice string
}

func (t troubled) Error() string { return t.err.Error() + "\n\twhat to do: " + t.advice }
func (t troubled) Unwrap() error { return t.err }

// advise adds to an error what to do about it, if it is of a known cause. The server's folder must still be there: a full
// disk is seen by what is free.
func advise(err error, folder string) error {
	text := strings.ToLower(err.Error())
	free, known := freeSpace(folder)
	full := known && free < enoughRoom/50
	switch {
	case errors.As(err, new(unavailable)), errors.As(err, new(troubled)), errors.Is(err, context.Canceled):
		return err
	case full || strings.Contains(text, "no space left") || strings.Contains(text, "disk full") || strings.Contains(text, "disk quota"):
		room := "too little room"
		if known {
			room = fmt.Sprintf("%d MB free", free>>20)
		}
		return troubled{err, fmt.Sprintf("%s has %s: make room, or set TMPDIR to a folder with %d MB", filepath.Dir(folder), room, enoughRoom>>20)}
	case portTaken(err):
		return troubled{err, "another program took the port, three times; see which by ss -ltnp"}
	case errors.Is(err, context.DeadlineExceeded):
		return troubled{err, "the server runs and does not answer: if the machine is busy, let less run beside it, else see its log above"}
	}
	return err
}
