//go:build !unix

package main

import (
	"errors"
	"os"
)

func stall(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }
