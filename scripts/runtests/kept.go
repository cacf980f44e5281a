package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// kept is a folder in which the test programs of a checkout stay from one run to the next, so that only what has changed is
// linked. What that is, is left to the go command alone: it links a program anew unless the build ID of the old one says that
// nothing in it has changed.
//
// A program is in its place only while it is not built. For that it moves to where the go command writes, and comes back when
// that has ended well. So what a run leaves that was killed, perhaps half a file with the build ID of a whole one, is removed
// by the next.
type kept struct {
	dir string
	// lock is locked as long as this process lives, or a go command that it has started.
	lock *os.File
}

const (
	// keptRoom has to be free on the disk for programs to be kept. All together they need 1.9 GB, and the tests themselves,
	// with their servers, shall never be short of it.
	keptRoom = 5 << 30
	// keptSize is what has to be free beside that where there are none yet: with less, those of one run would be removed by the next.
	keptSize = 2 << 30
	// keptFor is how long the programs of a checkout stay that are not used.
	keptFor = 7 * 24 * time.Hour
)

var errNotKept = errors.New("nothing is kept")

// openKept fails if another run has the programs of this checkout, or if nothing can be kept: this run has all programs in a
// folder of its own then.
func openKept(o options) (*kept, error) {
	if o.keep == "" {
		return nil, errNotKept
	}
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	k := &kept{dir: keptDir(o, root)}
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return nil, err
	}
	if k.lock, err = lockKept(k.dir); err != nil {
		return nil, err
	}
	if err := k.prepare(o, root); err != nil {
		return nil, errors.Join(err, k.lock.Close())
	}
	return k, nil
}

// keptDir: what runs with -light is built by other settings (see Makefile), and has a folder of its own.
func keptDir(o options, root string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s light=%v", root, o.light))
	keep := o.keep
	if !filepath.IsAbs(keep) { // programs are built and run in other folders
		keep = filepath.Join(root, keep)
	}
	return filepath.Join(keep, fmt.Sprintf("%x", sum[:8]))
}

// checkoutFile is what is locked. Its text is the path of the checkout, its time that of the last run.
const checkoutFile = "checkout"

func lockKept(dir string) (*os.File, error) {
	name := filepath.Join(dir, checkoutFile)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := tryLock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("another run uses %s: %w", dir, err), f.Close())
	}
	// Who locked it before may have removed it, and the folder with it.
	mine, err := f.Stat()
	now, nowErr := os.Stat(name)
	if err := errors.Join(err, nowErr); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if !os.SameFile(mine, now) {
		return nil, errors.Join(errNotKept, f.Close())
	}
	return f, nil
}

// prepare takes what is kept for this run, or removes it if the disk is too full.
func (k *kept) prepare(o options, root string) error {
	forgetOthers(k.dir)
	room, err := o.free(k.dir)
	if err != nil {
		return err
	}
	if files, _ := os.ReadDir(k.dir); room < keptRoom || len(files) == 1 && room < keptRoom+keptSize { // the lock is there
		return errors.Join(fmt.Errorf("%w: %s has %d MB left", errNotKept, k.dir, room>>20), os.RemoveAll(k.dir))
	}
	if err := errors.Join(os.RemoveAll(k.building()), k.lock.Truncate(0)); err != nil {
		return err
	}
	_, err = k.lock.WriteAt([]byte(root), 0)
	return err
}

// ours are the names of keptDir. The folder may have others, where the user has named it.
var ours = regexp.MustCompile(`^[0-9a-f]{16}$`)

// forgotten reports whether what is in a folder can be removed. A removal that was killed leaves a folder without the file.
func forgotten(dir string) bool {
	root, err := os.ReadFile(filepath.Join(dir, checkoutFile))
	if errors.Is(err, fs.ErrNotExist) {
		return ours.MatchString(filepath.Base(dir))
	}
	info, statErr := os.Stat(filepath.Join(dir, checkoutFile))
	if err != nil || statErr != nil {
		return false
	}
	_, err = os.Stat(string(root))
	return errors.Is(err, fs.ErrNotExist) || time.Since(info.ModTime()) >= keptFor
}

// forgetOthers removes programs of checkouts that are gone, or in which nobody has tested for long.
func forgetOthers(mine string) {
	dirs, _ := filepath.Glob(filepath.Join(filepath.Dir(mine), "*"))
	for _, dir := range dirs {
		if dir == mine || !forgotten(dir) {
			continue
		}
		if lock, err := lockKept(dir); err == nil {
			_ = os.RemoveAll(dir)
			_ = lock.Close()
		}
	}
}

// clean removes the programs of this checkout.
func clean(o options) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	for _, o.light = range []bool{false, true} {
		dir := keptDir(o, root)
		lock, err := lockKept(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := errors.Join(os.RemoveAll(dir), lock.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (k *kept) building() string { return filepath.Join(k.dir, "building") }

// place is where the program of a part is kept.
func (k *kept) place(p *part) string {
	kind := "plain"
	if p.race {
		kind = "race"
	}
	return p.in(filepath.Join(k.dir, kind, filepath.FromSlash(p.name)))
}

// prune removes what is no program of these parts.
func (k *kept) prune(parts []*part) {
	places := make(map[string]bool)
	for _, p := range parts {
		places[k.place(p)] = true
	}
	_ = filepath.WalkDir(k.dir, func(file string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && entry.Name() != checkoutFile && !places[file] {
			return os.Remove(file)
		}
		return err
	})
}

// build returns the parts with programs that it could not bring up to date, for any reason.
func (k *kept) build(ctx context.Context, o options, n int, batch []*part) (rest []*part) {
	dir := filepath.Join(k.building(), fmt.Sprint(n))
	defer os.RemoveAll(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return batch
	}
	old := time.Unix(0, 0)
	for _, p := range batch {
		program := p.in(dir)
		// An old program is as good as none if the go command fails. That command writes each
		// anew, or sets its time if it need not.
		if os.Rename(k.place(p), program) == nil && os.Chtimes(program, old, old) != nil {
			return batch
		}
	}
	if _, ended := compile(ctx, o, dir, batch, k.lock); !ended {
		return batch
	}
	for _, p := range batch {
		program, place := p.in(dir), k.place(p)
		info, err := os.Stat(program)
		if err != nil || !info.ModTime().After(old) || os.MkdirAll(filepath.Dir(place), 0o700) != nil || os.Rename(program, place) != nil {
			rest = append(rest, p)
			continue
		}
		p.program, p.kept = place, true
	}
	return rest
}
