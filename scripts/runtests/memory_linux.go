package main

import "syscall"

const (
	tmpfs  = 0x01021994 // the type of a file system in memory
	noexec = 8          // flag of one that runs no programs

	// memoryRoom is what the servers and files of the tests, side by side, stay well below. A tmpfs has half of the memory, if
	// nobody has said otherwise.
	memoryRoom = 8 << 30
)

// memoryFolder is a folder in memory for the temporary files of the tests, or empty. On a disk that the linker keeps busy, Redis
// and Postgres had no answer for seconds: a write to their logs waits there for the disk, although nobody asks for an fsync.
func memoryFolder() string {
	const dir = "/dev/shm"
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil || s.Type != tmpfs || s.Flags&noexec != 0 || s.Blocks*uint64(s.Bsize) < memoryRoom || s.Bavail*uint64(s.Bsize) < memoryRoom/2 {
		return ""
	}
	return dir
}
