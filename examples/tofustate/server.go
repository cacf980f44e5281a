package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/patterns"
)

const (
	maxState = 64 << 20 // bytes of one state
	maxInfo  = 64 << 10 // bytes of what is said of a lock

	// requestTime bounds what one request asks the store: the client waits for it.
	requestTime = 10 * time.Second
)

// Server speaks the protocol of the http backend: GET, POST and DELETE of a state, LOCK
// and UNLOCK. A run of OpenTofu takes the lock with an ID of its own, and names that
// with each write.
//
// A killed run looks like a long one, so the lock lasts until it is unlocked by force,
// or this server ends: then its lease does, too.
type Server struct {
	dir    string
	locker distlock.Locker

	mu   sync.Mutex
	held map[string]held // by the state's name; locked by this server
}

// held is a lock that a run has taken.
type held struct {
	id   string
	lock distlock.Lock
}

// info is what a run says of itself; the names are the protocol's.
type info struct {
	ID        string
	Operation string `json:",omitempty"`
	Info      string `json:",omitempty"`
	Who       string `json:",omitempty"`
	Version   string `json:",omitempty"`
	Created   string `json:",omitempty"`
	Path      string `json:",omitempty"`
}

// NewServer returns a handler for the states in dir.
func NewServer(dir string, l distlock.Locker) *Server {
	return &Server{dir: dir, locker: patterns.Prefix(l, "tofu/"), held: make(map[string]held)}
}

// stateName is what a state may be called: it becomes the name of a file.
var stateName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}$`)

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := filepath.Base(r.URL.Path)
	if "/"+name != r.URL.Path || !stateName.MatchString(name) {
		http.Error(w, "the path is the name of a state: up to 100 letters, digits, _, - and ., the first no dot", http.StatusNotFound)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTime)
	defer cancel()
	var err error
	switch r.Method {
	case "LOCK":
		err = s.lock(ctx, w, r, name)
	case "UNLOCK":
		err = s.unlock(ctx, w, r, name)
	case http.MethodGet:
		err = s.read(w, name)
	case http.MethodPost, http.MethodDelete:
		err = s.write(ctx, w, r, name)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE, LOCK, UNLOCK")
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// lock takes the state for the run in the body. 423 has what is known of the run that
// has it.
func (s *Server) lock(ctx context.Context, w http.ResponseWriter, r *http.Request, name string) error {
	run, ok := readInfo(w, r)
	if !ok {
		return nil
	}
	if run.ID == "" {
		http.Error(w, "the body has no ID", http.StatusBadRequest)
		return nil
	}
	lock, err := s.locker.TryLock(ctx, name, distlock.Holder(holderText(run)))
	if errors.Is(err, distlock.ErrHeld) {
		return s.refuse(ctx, w, name)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[name] = held{run.ID, lock} // one that was lost is forgotten
	return nil
}

// unlock frees the state that the run in the body has. Without an ID, as Terraform
// sends it for force-unlock, it frees the state from any holder. With the ID of a run
// that locked it by another server, it frees the state from that run.
func (s *Server) unlock(ctx context.Context, w http.ResponseWriter, r *http.Request, name string) error {
	run, ok := readInfo(w, r)
	if !ok {
		return nil
	}
	if h, ok := s.take(name, run.ID); ok {
		err := h.lock.Unlock(ctx)
		if errors.Is(err, distlock.ErrLost) {
			http.Error(w, "the lock was lost before: another run may have changed the state", http.StatusConflict)
			return nil
		}
		return err
	}
	st, err := distlock.Inspect(ctx, s.locker, name)
	switch {
	case err != nil:
		return err
	case !st.Held && run.ID == "":
		return nil // it is free
	case run.ID != "" && holderID(st) != run.ID:
		return s.refuse(ctx, w, name)
	}
	// Only the hold of this token: the next one may have begun meanwhile.
	if err := distlock.Break(ctx, s.locker, name, st.Token); err != nil && !errors.Is(err, distlock.ErrLost) {
		return err
	}
	return nil
}

// take removes the lock that this server has on name for the run with id, or for any.
func (s *Server) take(name, id string) (held, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.held[name]
	if !ok || id != "" && h.id != id {
		return held{}, false
	}
	delete(s.held, name)
	return h, true
}

// refuse answers 423 with the holder, as the client shows it.
func (s *Server) refuse(ctx context.Context, w http.ResponseWriter, name string) error {
	st, err := distlock.Inspect(ctx, s.locker, name)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusLocked)
	return json.NewEncoder(w).Encode(holderInfo(st))
}

// read sends the state; 204 says that there is none.
func (s *Server) read(w http.ResponseWriter, name string) error {
	text, err := os.ReadFile(s.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, err = w.Write(text)
	return err
}

// write replaces or removes the state, if the run named by ?ID= has the lock at this
// moment. A run with -lock=false names none, and may write while nobody has it.
func (s *Server) write(ctx context.Context, w http.ResponseWriter, r *http.Request, name string) error {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxState))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return nil
	}
	id := r.URL.Query().Get("ID")
	lock, release, err := s.writer(ctx, name, id)
	if errors.Is(err, distlock.ErrHeld) {
		return s.refuse(ctx, w, name)
	}
	if err != nil {
		return err
	}
	defer release()
	if r.Method == http.MethodDelete {
		if err := os.Remove(s.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	err = s.replace(ctx, name, text, lock)
	if errors.Is(err, distlock.ErrLost) {
		return s.refuse(ctx, w, name) // final: after a 500, the client would try again
	}
	return err
}

// writer returns the lock for a write of the request, and the function that ends its
// use.
func (s *Server) writer(ctx context.Context, name, id string) (distlock.Lock, func(), error) {
	s.mu.Lock()
	h, ok := s.held[name]
	s.mu.Unlock()
	if ok && id != "" && h.id == id && h.lock.Err() == nil {
		return h.lock, func() {}, nil
	}
	if id != "" {
		return nil, nil, distlock.ErrHeld // by another, or by nobody any more
	}
	lock, err := s.locker.TryLock(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	return lock, func() { _ = lock.Unlock(context.WithoutCancel(ctx)) }, nil
}

// replace writes a state in one step. As late as can be it asks the store whether the
// lock is still held: force-unlock at another server may have taken it away. A file
// system cannot compare a token with the one of the last writer.
func (s *Server) replace(ctx context.Context, name string, text []byte, lock distlock.Lock) error {
	f, err := os.CreateTemp(s.dir, ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails if it was renamed
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := lock.Extend(ctx, distlock.DefaultTTL); err != nil {
		return err
	}
	return os.Rename(f.Name(), s.file(name))
}

func (s *Server) file(name string) string { return filepath.Join(s.dir, name+".tfstate") }

// readInfo reads what a run says of itself; an empty body says nothing.
func readInfo(w http.ResponseWriter, r *http.Request) (run info, ok bool) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxInfo))
	if err == nil && len(text) > 0 {
		err = json.Unmarshal(text, &run)
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("the body is not what a run says of itself: %v", err), http.StatusBadRequest)
		return run, false
	}
	return run, true
}

// holderText is what the store keeps of a run. It has to fit, so the least important
// fields go first.
func holderText(run info) string {
	run.Info, run.Path, run.Version = "", "", ""
	for _, field := range []*string{nil, &run.Created, &run.Operation, &run.Who} {
		if field != nil {
			*field = ""
		}
		if text, err := json.Marshal(run); err == nil && len(text) <= distlock.MaxHolder && utf8.Valid(text) {
			return string(text)
		}
	}
	return ""
}

// holderInfo is what the store knows of the run that has a lock.
func holderInfo(st distlock.Status) info {
	var run info
	if json.Unmarshal([]byte(st.Holder), &run) != nil {
		run = info{Who: st.Holder}
	}
	run.ID = cmp.Or(run.ID, fmt.Sprintf("token-%d", st.Token))
	return run
}

func holderID(st distlock.Status) string {
	if !st.Held {
		return ""
	}
	return holderInfo(st).ID
}
