package work

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// ChildFlag makes the program do one job: see Child.
const ChildFlag = "-child"

// Do runs the job in a child process and returns what it measured. count answers
// how many requests the proxies of the job have seen.
func Do(ctx context.Context, j Job, count func() int64) (Figures, error) {
	row, ok := Find(j.Row)
	if !ok {
		return nil, fmt.Errorf("no row %q", j.Row)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// The child bounds itself; this is for one that cannot any more.
	ctx, cancel := context.WithTimeout(ctx, row.bound(j.Duration)+2*closeBound)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, ChildFlag)
	cmd.WaitDelay = time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	outcome, err := converse(j, in, out, count)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = cmd.Process.Kill()
	}
	// The outcome counts, however the child ends.
	if ended := cmd.Wait(); err != nil && ended != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w%s", err, ended, tail(stderr.String()))
	}
	if err == nil && outcome.Error != "" {
		err = errors.New(outcome.Error)
	}
	return outcome.Figures, err
}

func converse(j Job, in io.WriteCloser, out io.Reader, count func() int64) (message, error) {
	if err := json.NewEncoder(in).Encode(j); err != nil {
		return message{}, err
	}
	lines := bufio.NewReader(out)
	for {
		var m message
		text, err := lines.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(text, &m)
		}
		switch {
		case err != nil:
			return m, fmt.Errorf("the child process ended early: %w", err)
		case m.Done:
			return m, nil
		case m.Requests:
			if _, err := fmt.Fprintln(in, count()); err != nil {
				return m, err
			}
		}
	}
}

// tail returns the last lines of what a child has written when it died.
func tail(text string) string {
	const most = 600
	if text = strings.TrimSpace(text); text == "" {
		return ""
	}
	if len(text) > most {
		text = "… " + text[len(text)-most:]
	}
	return ": " + text
}
