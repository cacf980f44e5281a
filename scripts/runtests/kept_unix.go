//go:build linux || darwin

package main

import (
	"os"
	"syscall"
)

// tryLock locks an open file, for this process and those that inherit it, or fails at once.
func tryLock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// freeSpace is what is left of the disk that a folder is on, in bytes.
func freeSpace(dir string) (uint64, error) {
	var s syscall.Statfs_t
	err := syscall.Statfs(dir, &s)
	return s.Bavail * uint64(s.Bsize), err
}
