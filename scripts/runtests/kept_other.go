//go:build !linux && !darwin

package main

import "os"

func tryLock(*os.File) error           { return errNotKept }
func freeSpace(string) (uint64, error) { return 0, errNotKept }
