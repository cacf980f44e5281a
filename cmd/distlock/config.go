package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/internal/openurl"
)

const configHelp = `
The backend comes from --url, else from DISTLOCK_URL, else from "url:" in the file
that --config or DISTLOCK_CONFIG names. The file is YAML with the fields of
backends.Config: url, ttl, holder, token_base, require. DISTLOCK_TTL and DISTLOCK_HOLDER go before
its ttl and holder, and --ttl and --holder of run before those; a ttl or holder in the
URL must be the same. Others on the machine can see a password in --url, but not in the
environment or the file.

Check also takes the URL as an argument, and compare takes all of its URLs so. mem://, the
memory of one process, is for these two alone.`

const whereBackend = "\n\nWhere the backend comes from: \"distlock help backend\"."

// addBackendFlags gives cmd the flags for the choice of a backend.
func addBackendFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.String("url", "", `backend, like "redis://localhost:6379" (default $DISTLOCK_URL)`)
	f.String("config", "", "YAML `file` with url, ttl, holder, token_base and require (default $DISTLOCK_CONFIG)")
	cmd.Long += whereBackend
}

// textFields are what the environment and the flags may set. What must be the same in
// all processes is for the file alone: it belongs to the deployment, not to one call.
var (
	textFields = []string{"url", "ttl", "holder"}
	fileFields = append(slices.Clone(textFields), "token_base", "require")
)

// loadConfig puts the configuration together: the file, over it the environment,
// over it the flags that were set.
func loadConfig(cmd *cobra.Command) (backends.Config, error) {
	var c backends.Config
	k := koanf.New(".")
	name, err := cmd.Flags().GetString("config")
	if err != nil {
		return c, err
	}
	if name == "" {
		name = os.Getenv("DISTLOCK_CONFIG")
	}
	if name != "" {
		if err := loadFile(k, name); err != nil {
			return c, usage(fmt.Errorf("the configuration %s%w", name, err))
		}
	}
	environment := env.Provider(".", env.Opt{Prefix: "DISTLOCK_", TransformFunc: envField})
	if err := errors.Join(k.Load(environment, nil), k.Load(posflag.ProviderWithFlag(cmd.Flags(), ".", k, flagField(cmd)), nil)); err != nil {
		return c, err
	}
	if err := checkTTL(cmd, k, name); err != nil {
		return c, usage(err)
	}
	err = k.UnmarshalWithConf("", &c, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		Result:     &c,
		TagName:    "yaml",
		DecodeHook: mapstructure.TextUnmarshallerHookFunc(),
	}})
	if err != nil { // only of require: all else is a text that has been looked at
		return c, usage(fmt.Errorf("the configuration %s: %s, allowed are fair, push, durable, quorum", name, wrongRequirement(k)))
	}
	if c.URL == "" {
		return c, usage(noBackend(name))
	}
	given.learn(c.URL)
	return c, nil
}

// noBackend is the error of a configuration without a URL.
func noBackend(file string) error {
	place := ""
	if file != "" {
		place = fmt.Sprintf(", or write url: into the configuration %s", file)
	}
	return fmt.Errorf("no backend: pass --url, like --url redis://localhost:6379, or set DISTLOCK_URL%s", place)
}

// wrongRequirement says which word of require is not known, and shows none.
func wrongRequirement(k *koanf.Koanf) string {
	for i, word := range k.Strings("require") {
		if new(backends.Requirement).UnmarshalText([]byte(word)) != nil {
			return fmt.Sprintf("word %d of require is not known", i+1)
		}
	}
	return "require is no list of words"
}

// loadServer is loadConfig for what concerns other processes.
func loadServer(cmd *cobra.Command) (backends.Config, error) {
	c, err := loadConfig(cmd)
	if err == nil && openurl.Scheme(c.URL) == "mem" {
		err = usage(errors.New("mem:// is the memory of one process, which shares no lock with another: " +
			"allowed is the URL of a server, like redis://localhost:6379; mem:// is for check and compare"))
	}
	return c, err
}

// loadFile reads a file into k. The error completes "the configuration FILE". It quotes
// nothing of the file: whatever is not understood may be a password.
func loadFile(k *koanf.Koanf, name string) error {
	text, err := os.ReadFile(name) // once: it may be a pipe
	if err != nil {
		return fmt.Errorf(": %w", err)
	}
	if err := k.Load(rawbytes.Provider(text), yaml.Parser()); err != nil {
		return fmt.Errorf(" is not YAML with fields like \"url: redis://localhost\"%s", yamlLine.FindString(err.Error()))
	}
	if err := oneDocument(text); err != nil {
		return err
	}
	for _, field := range []string{"url", "holder"} {
		if _, single := k.Get(field).(string); k.Get(field) != nil && !single {
			return fmt.Errorf(`: %s is not a single text; a number or a yes is one in quotes, like "42"`, field)
		}
	}
	if _, whole := k.Get("token_base").(int); k.Exists("token_base") && !whole {
		return errors.New(": token_base is not a whole number")
	}
	for _, field := range k.Keys() {
		if !slices.Contains(fileFields, field) {
			return fmt.Errorf(" has an unknown field%s, allowed are %s", lineOf(field, text), strings.Join(fileFields, ", "))
		}
	}
	return nil
}

// oneDocument refuses a file with several YAML documents, also if a later one is none: the first alone would be read. The error
// completes the name of the file.
func oneDocument(text []byte) error {
	n, d := 0, yamlv3.NewDecoder(bytes.NewReader(text))
	for err := error(nil); err == nil; {
		if err = d.Decode(new(yamlv3.Node)); !errors.Is(err, io.EOF) {
			n++
		}
	}
	if n > 1 {
		return fmt.Errorf(" has %d YAML documents, allowed is one: what follows a line --- would not be read", n)
	}
	return nil
}

// yamlLine is what an error of the parser says of the place.
var yamlLine = regexp.MustCompile(` line \d+`)

// lineOf says in which line of a file a field is, if clear.
func lineOf(field string, text []byte) string {
	key, _, _ := strings.Cut(field, ".")
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(strings.TrimLeft(line, `"'`), key) {
			return fmt.Sprintf(" in line %d", i+1)
		}
	}
	return ""
}

// checkTTL looks at the TTL that applies, and names its source in an error. Zero would
// be the default, which a number that is written down does not mean.
func checkTTL(cmd *cobra.Command, k *koanf.Koanf, file string) error {
	given := k.Get("ttl")
	if given == nil {
		return nil
	}
	whose := "ttl in the configuration " + file
	if f := cmd.Flags().Lookup("ttl"); f != nil && f.Changed {
		whose = "--ttl"
	} else if os.Getenv("DISTLOCK_TTL") != "" {
		whose = "DISTLOCK_TTL"
	}
	var ttl backends.Duration
	if err := ttl.UnmarshalText([]byte(fmt.Sprint(given))); err != nil {
		what := "no duration"
		if _, err := strconv.ParseFloat(fmt.Sprint(given), 64); err == nil {
			what = "a number without a unit"
		}
		return fmt.Errorf(`%s is %s, allowed is a duration like "30s" or "1m30s"`, whose, what)
	}
	if ttl <= 0 {
		return fmt.Errorf("%s is %v, allowed is more than 0; leave it out for what the URL says, or %v",
			whose, ttl, backends.Duration(distlock.DefaultTTL))
	}
	return nil
}

// envField takes what has a field from the environment; DISTLOCK_REDIS_URL and its
// like are for the tests.
func envField(key, value string) (string, any) {
	field := strings.ToLower(strings.TrimPrefix(key, "DISTLOCK_"))
	for _, f := range textFields {
		if f == field && value != "" {
			return field, value
		}
	}
	return "", nil
}

// flagField takes what has a field from the flags that were set.
func flagField(cmd *cobra.Command) func(f *pflag.Flag) (string, any) {
	return func(f *pflag.Flag) (string, any) {
		for _, field := range textFields {
			if f.Name == field && f.Changed {
				return field, f.Value.String()
			}
		}
		return "", nil
	}
}

// backend is an open Locker, and what to call it.
type backend struct {
	locker distlock.Locker
	url    string // without its password

	renewals renewals
}

// renewals is what became of the latest one. It is safe for concurrent use.
type renewals struct {
	mu  sync.Mutex
	err error
}

func (r *renewals) note(e distlock.Renewed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = e.Err
}

// last returns why the latest renewal has failed, or nil if it has not.
func (r *renewals) last() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// openBackend opens the Locker that the configuration names. An unreachable backend and
// a wrong configuration have exit statuses of their own.
func openBackend(ctx context.Context, cmd *cobra.Command) (*backend, error) {
	c, err := loadServer(cmd)
	if err != nil {
		return nil, err
	}
	return openConfig(ctx, c, openurl.Redact(c.URL), false)
}

// openConfig is openBackend with a configuration that has been loaded, and with what
// to call the backend. It may tell what the backend warns of.
func openConfig(ctx context.Context, c backends.Config, name string, warn bool) (b *backend, err error) {
	b = &backend{url: name}
	opts := []backends.Option{backends.Observer(&distlock.Observer{Renewed: b.renewals.note})}
	if warn {
		opts = append(opts, backends.Logger(slog.New(warnings{name})))
	}
	b.locker, err = c.Open(ctx, opts...)
	switch {
	case errors.Is(err, distlock.ErrInvalid), errors.Is(err, distlock.ErrUnsupported):
		return nil, usage(err)
	case err != nil:
		return nil, b.failed(withHint(err))
	}
	return b, nil
}

// warnings tells what a backend warns of, such as a Redis that may evict locks.
type warnings struct{ url string }

func (warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (w warnings) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += fmt.Sprintf("; %s: %v", a.Key, a.Value)
		return true
	})
	say("%s: warning: %s", w.url, text)
	return nil
}

func (w warnings) WithAttrs([]slog.Attr) slog.Handler { return w } // the drivers have all in their records
func (w warnings) WithGroup(string) slog.Handler      { return w }

// unanswered finds in the text of an error that no server has answered. The text is all there is: gRPC keeps no
// error that it has met, and neither does every client library.
var unanswered = regexp.MustCompile(`\b(dial|lookup) |no answer|not answered|deadline exceeded|i/o timeout|\bEOF\b|reset by peer|broken pipe`)

// withHint says what to look at if no server has answered. An answer says itself what is wrong.
func withHint(err error) error {
	if !unanswered.MatchString(err.Error()) {
		return err
	}
	return fmt.Errorf("%w (nothing was done; is the server up, and the URL right?)", err)
}

// failed gives an error of the backend its exit status. It names the backend if the
// error does not.
func (b *backend) failed(err error) error {
	if strings.Contains(err.Error(), b.url) {
		return &exit{status: statusUnavailable, err: err}
	}
	return &exit{status: statusUnavailable, err: &onBackend{b.url, err}}
}

// onBackend is an error with the backend it comes from.
type onBackend struct {
	url string
	error
}

func (e *onBackend) Error() string { return e.url + ": " + named(e.error.Error()) }
func (e *onBackend) Unwrap() error { return e.error }
