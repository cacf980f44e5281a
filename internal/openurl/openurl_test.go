package openurl_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/openurl"
)

var schemes = []string{"redis", "rediss", "zk", "zks", "mysql", "mysqls"}

func parse(t *testing.T, raw string) *openurl.URL {
	t.Helper()
	u, err := openurl.Parse(raw, schemes...)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// wantInvalid checks that err is an ErrInvalid that says every one of parts.
func wantInvalid(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !errors.Is(err, distlock.ErrInvalid) {
		t.Fatalf("the error is %v, want an ErrInvalid", err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("the error does not say %q: %v", p, err)
		}
	}
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		raw      string
		hosts    []string // with 7 as the default port
		path     string
		user     string
		password string
	}{
		{raw: "redis://", hosts: []string{"localhost:7"}},
		{raw: "redis://h", hosts: []string{"h:7"}},
		{raw: "REDIS://h:1/0?x=y", hosts: []string{"h:1"}, path: "/0"},
		{raw: "redis://h?x=/y", hosts: []string{"h:7"}},
		{raw: "redis:///0", hosts: []string{"localhost:7"}, path: "/0"},
		{raw: "zk://a,b:1,c/chroot/x", hosts: []string{"a:7", "b:1", "c:7"}, path: "/chroot/x"},
		{raw: "zk://[::1],[fe80::2]:1,10.0.0.1:2/a%20b%2Fc",
			hosts: []string{"[::1]:7", "[fe80::2]:1", "10.0.0.1:2"}, path: "/a b/c"},
		{raw: "mysql://root@h/db", hosts: []string{"h:7"}, path: "/db", user: "root"},
		{raw: "redis://:s3cret@h", hosts: []string{"h:7"}, password: "s3cret"},
		{raw: "redis://me:a%2Fb%3Fc%23d%40e%3Af%25@h:1", hosts: []string{"h:1"}, user: "me", password: "a/b?c#d@e:f%"},
		{raw: "redis://me:a@b:c,d@h:1", hosts: []string{"h:1"}, user: "me", password: "a@b:c,d"},
		{raw: "redis://me:a+b&c=d@h:1", hosts: []string{"h:1"}, user: "me", password: "a+b&c=d"},
		{raw: "redis://:p%C3%A4ss@h:1", hosts: []string{"h:1"}, password: "päss"},
	} {
		t.Run(tc.raw, func(t *testing.T) {
			u, err := openurl.Parse(tc.raw, schemes...)
			if err != nil {
				t.Fatal(err)
			}
			name, password, ok := u.User()
			if got := u.HostsDefault("7"); !reflect.DeepEqual(got, tc.hosts) {
				t.Errorf("hosts are %q, want %q", got, tc.hosts)
			}
			if u.Path() != tc.path || name != tc.user || password != tc.password || ok != strings.Contains(tc.raw, "@") {
				t.Errorf("path %q, user %q, password %q, %v", u.Path(), name, password, ok)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for raw, want := range map[string]string{
		"":                              `the URL "" does not begin with a scheme`,
		"me":                            "the URL xxxxx (hidden: it may contain a password) does not begin with a scheme",
		"redis://:7":                    "the URL redis://xxxxx (hidden: it may contain a password) has no valid",
		"mysql://me:p@tcp(h:3306)/shop": "are in brackets); write h:3306 without tcp( )",
		"mysql://me:p@tcp(h!)/shop":     "are in brackets); write host:port without tcp( )",
		"mysql://tcp(s3cret)/shop":      "are in brackets); write host:port without tcp( )",
		"localhost:6379":                "does not begin with a scheme",
		"redis:h":                       "does not begin with a scheme",
		"1redis://h":                    "does not begin with a scheme",
		"etcd://h":                      `has the scheme "etcd", allowed are redis, rediss, zk, zks, mysql, mysqls`,
		"redis://h/a b":                 "a space",
		"redis://h\n":                   "control character",
		"redis://h/0#x":                 "%23",
		"redis://:a/b@h":                "%2F",
		"redis://:a?b@h":                "%3F",
		"redis://h?holder=me@x":         "%40",
		"redis://h:port":                "place 1",
		"redis://h,i:0":                 "has a port in place 2 of its hosts that is not 1 to 65535",
		"redis://h:65536":               "has a port in place 1 of its hosts that is not 1 to 65535",
		"redis://me:pw@h:99999/0":       "has a port in place 1 of its hosts",
		"redis://[::1]:99999":           "has a port in place 1 of its hosts",
		"redis://me:1234567":            "has a port in place 1 of its hosts",
		"redis://h:1:2":                 "place 1",
		"redis://::1":                   "place 1",
		"redis://[::1":                  "place 1",
		"redis://[10.0.0.1]:1":          "place 1",
		"redis://[::1]1":                "place 1",
		"redis://h,,i":                  "place 2",
		"redis://h!":                    "place 1",
		"redis://:a%zz@h":               "%25",
		"redis://h/%zz":                 "path",
		"redis://h?a=%zz":               "parameter 1",
		"redis://h?a=1&b":               "place 2",
		"redis://h?=1":                  "place 1",
		"redis://h?a=1&":                "place 2",
		"redis://h?ttl=1s&ttl=1s":       `gives the parameter "ttl" twice`,
		"redis://h?ttl=1s&t%74l=2s":     `gives the parameter "ttl" twice`,
	} {
		t.Run(raw, func(t *testing.T) {
			u, err := openurl.Parse(raw, schemes...)
			if err == nil {
				t.Fatalf("parsed as %+v", u)
			}
			wantInvalid(t, err, want)
		})
	}
}

func TestParseAnyScheme(t *testing.T) {
	u, err := openurl.Parse("etcds://h")
	if err != nil || u.Scheme() != "etcds" || u.TLS() != nil || u.Err() != nil {
		t.Errorf("got %v, %v, %v", u, err, u.Err())
	}
}

func TestHostTwice(t *testing.T) {
	u := parse(t, "redis://h,h:7")
	u.HostsDefault("7")
	wantInvalid(t, u.Err(), "h:7 is listed twice")
}

func TestGetters(t *testing.T) {
	u := parse(t, "redis://h/1?text=a+b%26c&int=-3&bool=true&dur=1m30s&word=b")
	check := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	check("text", u.Text("text", "x"), "a b&c")
	check("int", u.Int("int", 1, -5, 5), -3)
	check("bool", u.Bool("bool", false), true)
	check("duration", u.Duration("dur", 0, 0, time.Hour), 90*time.Second)
	check("word", u.OneOf("word", "a", "b"), "b")
	check("default text", u.Text("text2", "x"), "x")
	check("default int", u.Int("int2", 1, 0, 5), 1)
	check("default bool", u.Bool("bool2", true), true)
	check("default duration", u.Duration("dur2", time.Second, 0, time.Hour), time.Second)
	check("default word", u.OneOf("word2", "a", "b"), "a")
	if err := u.Err(); err != nil {
		t.Error(err)
	}
}

func TestGettersRefuse(t *testing.T) {
	get := func(u *openurl.URL) {
		u.Int("int", 1, 0, 5)
		u.Bool("bool", false)
		u.Duration("dur", time.Second, time.Millisecond, time.Hour)
		u.OneOf("word", "a", "b")
	}
	for query, want := range map[string]string{
		"int=x":      `the parameter int is "x", allowed is an integer from 0 to 5`,
		"int=":       "0 to 5",
		"int=6":      "0 to 5",
		"int=-1":     "0 to 5",
		"int=1.5":    "0 to 5",
		"bool=1":     "true or false",
		"bool=TRUE":  "true or false",
		"dur=30":     `the parameter dur is "30", allowed is a duration like "30s", from 1ms to 1h`,
		"dur=0s":     "1ms to 1h",
		"dur=-1s":    "1ms to 1h",
		"dur=2h":     "1ms to 1h",
		"word=c":     `the parameter word is "c", allowed is one of a, b`,
		"word=A":     "one of a, b",
		"int=9&dr=1": "parameter int", // the first error wins over an unknown parameter
	} {
		t.Run(query, func(t *testing.T) {
			u := parse(t, "redis://:pw@h?"+query)
			get(u)
			wantInvalid(t, u.Err(), want, "redis://:xxxxx@h")
		})
	}
}

// A password in a parameter that there is not, or as one, is never shown.
func TestUnknownParameterMayBeAPassword(t *testing.T) {
	const password = "Hunter2Hunter2"
	for _, query := range []string{
		"pw=" + password, "passwrd=" + password, "x=" + password, "ttl=1s&me=" + password, password + "=", password + "=x",
		"pw=a%40b&" + password + "=x", password, password + "=1&" + password + "=2", "pw=" + password + "&pw=" + password,
	} {
		u, err := openurl.Parse("redis://h?"+query, "redis")
		if err == nil {
			var o distlock.Options
			u.Common(&o)
			err = u.Err()
		}
		wantInvalid(t, err, "parameter")
		for _, text := range []string{err.Error(), openurl.Redact("redis://h?" + query)} {
			if strings.Contains(text, password) {
				t.Errorf("%q is shown: %s", query, text)
			}
		}
	}
}

func TestUnknownParameter(t *testing.T) {
	for query, want := range map[string]string{
		"tll=1s":            `unknown parameter "tll" (did you mean "ttl"?), allowed are dial_timeout, holder, prefix, token_base, ttl`,
		"tsl=on":            `unknown parameter "tsl" (did you mean`,
		"TTL=1s":            `did you mean "ttl"?`,
		"dial-timeout=1s":   `did you mean "dial_timeout"?`,
		"dialtimeout=1s":    `did you mean "dial_timeout"?`,
		"dail_timeout=1s":   `did you mean "dial_timeout"?`,
		"prefx=x":           `did you mean "prefix"?`,
		"database=x":        `unknown parameter "database", allowed`,
		"ttl=1s&foo=x":      `unknown parameter "foo", allowed`,
		"foo=x&bar=y":       `?foo=xxxxx&xxxxx has the unknown parameter "foo", allowed`,
		"connect_timeout=9": `unknown parameter "connect_timeout" (here it is "dial_timeout", with the values 1s to 1m), allowed`,
		"parseTime=true":    `unknown parameter "parseTime" (leave it out: a lock does not need it), allowed`,
		"foo1=x":            `an unknown parameter, allowed`,
		"ttl%20=1s":         `unknown parameter "ttl "`,
	} {
		t.Run(query, func(t *testing.T) {
			u := parse(t, "redis://h?"+query)
			var o distlock.Options
			u.Common(&o)
			u.Text("prefix", "")
			u.Duration("dial_timeout", time.Second, time.Second, time.Minute)
			wantInvalid(t, u.Err(), want)
		})
	}
	u := parse(t, "redis://h?a=b")
	u.Int("n", 4, 1, 9)
	var unknown *openurl.UnknownParamError
	if err := u.Err(); !errors.As(err, &unknown) {
		t.Fatalf("the error is %v, want an UnknownParamError", err)
	}
	if want := []openurl.Param{{Name: "n", Type: "integer", Default: "4", Allowed: "1 to 9"}}; !reflect.DeepEqual(unknown.Known, want) {
		t.Errorf("known are %+v, want %+v", unknown.Known, want)
	}
}

func TestCommon(t *testing.T) {
	const ten = 10 * time.Second
	for _, tc := range []struct {
		query      string
		have, want distlock.Options
		err        string
	}{
		{query: "", want: distlock.Options{}},
		{query: "", have: distlock.Options{TTL: ten, Holder: "me"}, want: distlock.Options{TTL: ten, Holder: "me"}},
		{query: "?ttl=10s&holder=me", want: distlock.Options{TTL: ten, Holder: "me"}},
		{query: "?ttl=10s&holder=me", have: distlock.Options{TTL: ten, Holder: "me"}, want: distlock.Options{TTL: ten, Holder: "me"}},
		{query: "?ttl=20s", have: distlock.Options{TTL: ten}, err: "the ttl is 20s, but also given as 10s"},
		{query: "?holder=you", have: distlock.Options{Holder: "me"}, err: "the holder is you, but also given as me"},
		{query: "?holder=", err: `the parameter holder is "", allowed is a text that is not empty, in UTF-8`},
		{query: "?holder=a%ff", err: `the parameter holder is "a\xff", allowed is a text`},
		{query: "?ttl=0s", err: "1ms to 8760h"},
		{query: "?ttl=9000h", err: "1ms to 8760h"},
	} {
		t.Run(tc.query, func(t *testing.T) {
			u := parse(t, "redis://h"+tc.query)
			got := tc.have
			u.Common(&got)
			if tc.err != "" {
				wantInvalid(t, u.Err(), tc.err)
				return
			}
			if err := u.Err(); err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("options are %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestMerge(t *testing.T) {
	for _, tc := range []struct {
		raw, have, want, err string
	}{
		{raw: "zk://h", want: "table: default"},
		{raw: "zk://h", have: "mine", want: "table: mine"},
		{raw: "zk://h?table=url", want: "table: url"},
		{raw: "zk://h?table=url", have: "url", want: "table: url"},
		{raw: "zk://h?table=url", have: "mine", err: "the table is url, but also given as mine"},
		{raw: "zk://h?table=default", have: "mine", err: "the table is default, but also given as mine"},
		{raw: "zk://h/url", want: "path: /url"},
		{raw: "zk://h", have: "/mine", want: "path: /mine"},
		{raw: "zk://h/url", have: "/mine", err: "the prefix is /url, but also given as /mine"},
	} {
		t.Run(tc.raw+" "+tc.have, func(t *testing.T) {
			u, got := parse(t, tc.raw), tc.have
			if strings.Contains(tc.want+tc.err, "table") {
				openurl.Merge(u, "table", u.Text("table", "default"), &got)
				got = "table: " + got
			} else {
				openurl.Merge(u, "prefix", u.Path(), &got)
				got = "path: " + got
			}
			if tc.err != "" {
				wantInvalid(t, u.Err(), tc.err)
			} else if err := u.Err(); err != nil || got != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Millisecond: "1ms", 90 * time.Second: "1m30s", 10 * time.Minute: "10m",
		time.Hour: "1h", 10*time.Hour + time.Second: "10h0m1s", 365 * 24 * time.Hour: "8760h",
	} {
		if got := openurl.Short(d); got != want {
			t.Errorf("Short(%v) is %q, want %q", d, got, want)
		}
	}
}

// A URL that is printed, by mistake or not, must not show the password.
func TestPrintingHidesPassword(t *testing.T) {
	u := parse(t, "redis://me:s3cret@h/0?ttl=10s")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, v := range []any{u, *u, struct{ U *openurl.URL }{u}} {
			if s := fmt.Sprintf(verb, v); strings.Contains(s, "s3cret") || strings.Contains(s, fmt.Sprintf("%x", "s3cret")) {
				t.Errorf("%s of a %T prints %s", verb, v, s)
			}
		}
	}
	if want := "redis://me:xxxxx@h/0?ttl=10s"; u.String() != want {
		t.Errorf("String is %q, want %q", u, want)
	}
}

// Two parameters may be as near as each other: the error names both.
func TestNearest(t *testing.T) {
	for name, want := range map[string]string{"tll": "tls ttl", "ttl_": "ttl", "holdr": "holder", "x": ""} {
		if got := strings.Join(openurl.Nearest(name, []string{"holder", "tls", "ttl"}), " "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
