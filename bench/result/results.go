package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"time"

	"github.com/distlock-go/distlock/internal/servers"
)

// Schema is the version of the JSON form. It changes when a field changes its
// meaning or goes away.
const Schema = 1

// Results are what one or more runs have measured.
type Results struct {
	Schema   int                       `json:"schema"`
	Machine  Machine                   `json:"machine"`
	Versions map[string]string         `json:"versions"` // of the libraries, by module
	Backends map[servers.Kind]*Backend `json:"backends"`
}

// Backend is what was measured on one store.
type Backend struct {
	Server string `json:"server"` // version and origin
	Rows   []*Row `json:"rows"`
}

// Row is one workload, measured on the contenders in turn.
type Row struct {
	ID      string    `json:"id"`
	Title   string    `json:"title"`
	Taken   time.Time `json:"taken"`
	Commit  string    `json:"commit,omitempty"` // of distlock; with a plus if there were changes
	Command []string  `json:"command"`          // of the run, after the program's name
	Seconds float64   `json:"seconds"`          // of one contender in one round
	TTL     float64   `json:"ttl_seconds"`
	Load    float64   `json:"load_before,omitempty"` // of the machine, over the minute before
	InTurn  bool      `json:"in_turn"`               // the contenders took turns, in several rounds: ratios make sense
	Rounds  []Round   `json:"rounds"`
	// Failed says why contenders could not do it, in the round in which they failed last.
	Failed map[string]string `json:"failed,omitempty"`
	// Profiles are of another round, by contender: they disturb what is timed.
	Profiles map[string]*Profile `json:"profiles,omitempty"`
	// Heap is where the memory of our held locks goes, if they need too much.
	Heap []Site `json:"heap,omitempty"`
}

// Round is what one round has measured: contender, figure, value.
type Round map[string]map[Figure]float64

// Row returns a row, or nil if it was not measured.
func (b *Backend) Row(id string) *Row {
	if b == nil {
		return nil
	}
	for _, r := range b.Rows {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// Series returns the values of a contender, NaN for rounds in which it failed.
func (r *Row) Series(contender string, f Figure) Series {
	if r == nil {
		return nil
	}
	s := make(Series, len(r.Rounds))
	for i, round := range r.Rounds {
		v, ok := round[contender][f]
		if !ok {
			v = math.NaN()
		}
		s[i] = v
	}
	return s
}

// Put adds a row, in the place of an older one of the same name.
func (b *Backend) Put(row *Row) {
	for i, r := range b.Rows {
		if r.ID == row.ID {
			b.Rows[i] = row
			return
		}
	}
	b.Rows = append(b.Rows, row)
}

// Open returns results for a run to add to, with the machine and the versions of
// today: those in the file, or empty ones if there is no file or if all is to be
// measured afresh. It fails if the file has figures of another machine or of other
// versions, for they cannot stand beside new ones.
func Open(path string, afresh bool) (*Results, error) {
	r := &Results{Schema: Schema, Machine: thisMachine(), Versions: versions(), Backends: make(map[servers.Kind]*Backend)}
	if afresh {
		return r, nil
	}
	old, err := Read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, nil
	case err != nil:
		return nil, err
	case !old.fits(r):
		return nil, fmt.Errorf("results: %s is of another machine or of other versions: remove it, or write to another file", path)
	}
	old.Versions = r.Versions
	return old, nil
}

// Read reads a file that Save has written.
func Read(path string) (*Results, error) {
	r := new(Results)
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	if err == nil && r.Schema != Schema {
		err = fmt.Errorf("its schema is %d, this program knows %d", r.Schema, Schema)
	}
	if err != nil {
		return nil, fmt.Errorf("results: %s: %w", path, err)
	}
	return r, nil
}

// Save writes the results, all of them or none.
func (r *Results) Save(path string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	temp := path + ".new"
	if err := os.WriteFile(temp, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return os.Rename(temp, path)
}
