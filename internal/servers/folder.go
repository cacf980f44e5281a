package servers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Ports are taken below the range of the local ports of outgoing connections (32768 and up on Linux, 49152 on
// others). Otherwise a client that dials the port of a killed server again and again could be given that very port as
// its own. It would connect to itself, and keep the server from coming back.
const (
	firstPort = 20000
	lastPort  = 31999
)

const folderPrefix = "distlock-"

// containerMark is the file in a folder that says its data is in the container of the folder's name.
const containerMark = "container"

var errLocked = errors.New("locked by another process")

// folder is the temporary folder of one server: distlock-PORT. Making it reserves the port among all processes that
// use this package, also while the server is killed. Its owner keeps it locked; a folder that can be locked by
// somebody else belongs to a process that died.
type folder struct {
	path string
	port int
	lock *os.File // the folder itself, opened; the lock goes when the file is closed, at the latest with the process
}

func newFolder() (*folder, error) { return newFolderOf(firstPort, lastPort) }

// newFolderOf takes a port of a range.
func newFolderOf(first, last int) (*folder, error) {
	if errPlatform != nil {
		return nil, errPlatform
	}
	for range min(1000, 10*(last-first+1)) {
		port := first + rand.IntN(last-first+1)
		f, err := makeFolder(filepath.Join(os.TempDir(), folderPrefix+strconv.Itoa(port)), port)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return nil, advise(err, filepath.Join(os.TempDir(), folderPrefix))
		}
	}
	return nil, troubled{fmt.Errorf("no free port was found from %d to %d", first, last),
		fmt.Sprintf("end what listens there (ss -ltnp); if nothing does, remove the folders %s*", filepath.Join(os.TempDir(), folderPrefix))}
}

// makeFolder makes and locks one folder; os.ErrExist means that this port is taken in one way or another.
func makeFolder(path string, port int) (*folder, error) {
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, err
	}
	f := &folder{path: path, port: port}
	var err error
	f.lock, err = lockPath(path)
	if errors.Is(err, errLocked) || errors.Is(err, os.ErrNotExist) {
		// Since Mkdir a sweeper has taken the folder for a dead process's: it is his to remove.
		return nil, os.ErrExist
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	l, err := net.Listen("tcp", f.addr())
	if errors.Is(err, syscall.EADDRINUSE) {
		err = os.ErrExist
	}
	if err != nil {
		return nil, errors.Join(err, f.remove())
	}
	return f, l.Close()
}

func (f *folder) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(f.port)) }

// name is a name for the server, unique on this machine while the folder exists.
func (f *folder) name() string { return filepath.Base(f.path) }

// remove deletes the folder, then gives up the lock: in this order, so that no sweeper finds it unlocked.
func (f *folder) remove() error {
	freeShared(filepath.Join(f.path, "data", "postmaster.pid"))
	return errors.Join(os.RemoveAll(f.path), f.lock.Close())
}

// lockPath opens and locks the folder at path; it fails if another process has it locked or the folder is gone.
func lockPath(path string) (*os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := tryLock(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	// The folder may have been removed between opening and locking: then the lock is on nothing.
	mine, err := file.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Lstat(path); err == nil && !os.SameFile(mine, there) {
			err = os.ErrNotExist
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// sweep removes what processes left behind that were killed before they could close their servers. It is best
// effort: what cannot be removed now stays for the next run.
func sweep(ctx context.Context) {
	paths, err := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"[0-9]*"))
	if err != nil {
		return
	}
	for _, path := range paths {
		port, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(path), folderPrefix))
		if err != nil || port < firstPort || port > lastPort || !ownFolder(path) {
			continue
		}
		lock, err := lockPath(path)
		if err != nil {
			continue
		}
		f := &folder{path: path, port: port, lock: lock}
		if _, err := os.Stat(filepath.Join(path, containerMark)); err == nil && removeContainer(ctx, f.name()) != nil {
			_ = lock.Close() // the engine does not answer: keep the mark for a run that finds one
			continue
		}
		endWithin(path)
		_ = f.remove()
	}
}
