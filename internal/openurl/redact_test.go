package openurl_test

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/internal/openurl"
)

func TestRedact(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://h:6379/0?ttl=10s":                        "redis://h:6379/0?ttl=10s",
		"redis://me:pw@h:6379/0":                          "redis://me:xxxxx@h:6379/0",
		"redis://:pw@h":                                   "redis://:xxxxx@h",
		"redis://pw@h":                                    "redis://xxxxx@h",
		"redis://me:p@w@h":                                "redis://me:xxxxx@h",
		"redis://me:p/w@h:1/0":                            "redis://xxxxx",
		"redis://me:1/w@h:1/0":                            "redis://xxxxx",
		"redis://me:p?w@h:1/0":                            "redis://xxxxx",
		"redis://me:p#w@h:1/0":                            "redis://xxxxx",
		"redis://me:p w@h:1/0":                            "redis://xxxxx",
		"redis://me:p%zz@h:1/0":                           "redis://xxxxx",
		"redis://me:pw@h:port":                            "redis://xxxxx",
		"redis://:pw":                                     "redis://xxxxx",
		"zk://u:pw@a:1,u:pw@b:2/x":                        "zk://u:xxxxx@b:2/x",
		"redis://h?password=pw&ttl=1s":                    "redis://h?password=xxxxx&ttl=1s",
		"redis://h?pw=s3cret&ttl=1s":                      "redis://h?pw=xxxxx&ttl=1s",
		"redis://h?ttl=1s&tt1=s3cret":                     "redis://h?ttl=1s&tt1=xxxxx",
		"redis://h?tt%6c=s3cret":                          "redis://h?tt%6c=xxxxx",
		"redis://h?PWD=pw":                                "redis://h?PWD=xxxxx",
		"redis://h?password=a@b&ttl=1s":                   "redis://xxxxx",
		"redis://h?auth=digest:u:pw":                      "redis://h?auth=xxxxx",
		"redis://h?ttl=3s;password=pw":                    "redis://xxxxx",
		"redis://h?ttl=3s?password=pw":                    "redis://xxxxx",
		"mysql://h/shop;password=pw":                      "mysql://xxxxx",
		"redis://me:pw@h?ttl=3s;password=pw":              "redis://xxxxx",
		"redis://me:pw@h?ttl=3s?password=pw":              "redis://xxxxx",
		"redis:me:pw@h":                                   "xxxxx",
		"redis:/me:pw@h":                                  "xxxxx",
		"//me:pw@h":                                       "xxxxx",
		"user:pw@tcp(127.0.0.1:3306)/db?timeout=1s":       "user:xxxxx@tcp(127.0.0.1:3306)/db?timeout=xxxxx",
		"user:p@/w(@unix(/tmp/mysql.sock)/db":             "user:xxxxx@unix(/tmp/mysql.sock)/db",
		"user:pw@/db":                                     "xxxxx",
		"mysql://me:p/w@tcp(h:1)/db?x=y":                  "mysql://xxxxx@tcp(h:1)/db?x=xxxxx",
		"me:pw@tcp(h)/db\n\x1b[31m":                       "me:xxxxx@tcp(h)/db??[31m",
		"user:p=w@tcp(h)/db":                              "xxxxx",
		"tcp(127.0.0.1:3306)/db":                          "xxxxx",
		"host=db user=me password=P@ssw0rd dbname=app":    "xxxxx",
		"host=db password='P@ss(w0rd)/1'":                 "xxxxx",
		"cache:6380,password=P@ssw0rd,ssl=True":           "xxxxx",
		"redis://cache:6380,password=P@ssw0rd,ssl=True":   "redis://xxxxx",
		"redis://cache:6380,password=P@ssw0rd":            "redis://xxxxx",
		"Server=db;Uid=me;Pwd=P@ssw0rd":                   "xxxxx",
		"postgres://host=db password=P@ssw0rd dbname=app": "postgres://xxxxx",
		"me:P@ssw0rd":                                     "xxxxx",
		"redis://:P@ss#w0rd":                              "redis://xxxxx",
		"pw":                                              "xxxxx",
		"":                                                "xxxxx",
		"redis://me:pw@h\n\x1b[31m":                       "redis://xxxxx",
	} {
		if got := openurl.Redact(raw); got != want {
			t.Errorf("Redact(%q) is %q, want %q", raw, got, want)
		}
	}
}

// What the store has said stands behind the URL, and nothing of it is left out.
func TestNamed(t *testing.T) {
	refused := errors.New("refused")
	opened := &distlock.Error{Op: "open mysql", Err: refused}
	late := errors.New("late")
	for what, tc := range map[string]struct {
		err  error
		want string
	}{
		"alone":            {opened, "refused"},
		"joined with one":  {errors.Join(opened, late), "distlock: open mysql: refused; late"},
		"of another call":  {errors.Join(opened, &distlock.Error{Op: "close", Err: late}), "distlock: open mysql: refused; distlock: close: late"},
		"with other words": {fmt.Errorf("a: %w, b: %w", opened, late), "a: distlock: open mysql: refused, b: late"},
		"of nobody's":      {refused, "refused"},
	} {
		err := openurl.Named("mysql://me:pw@h/db", tc.err)
		if want := "distlock: open mysql://me:xxxxx@h/db: " + tc.want; err.Error() != want || !errors.Is(err, refused) {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	if err := openurl.Named("mysql://h", nil); err != nil {
		t.Errorf("of no error: %v", err)
	}
}

func TestSecrets(t *testing.T) {
	for raw, want := range map[string][]string{
		"redis://h:6379/0?ttl=10s":           nil,
		"redis://me:pw@h":                    {"pw"},
		"-uredis://me:p%40w@h?ttl=1s&key=k2": {"p%40w", "p@w", "k2"},
		"redis://me:p@s:w/o?r#d% @h":         {"p@s:w/o?r#d% "},
		"redis://h?pw=s3cret":                {"s3cret"},
		"user:pw@tcp(h)/db":                  {"pw"},
		"redis://:@h":                        nil,
		"job":                                nil,
	} {
		if got := openurl.Secrets(raw); !slices.Equal(got, want) {
			t.Errorf("Secrets(%q) is %q, want %q", raw, got, want)
		}
	}
}

// marker is a piece of every password of FuzzRedact that nothing else contains, so
// that a leak of the piece is found, too.
const marker = "Zq7Zq7"

// FuzzRedact puts passwords into all the places where people put them, in all the
// ways of writing them, and looks for them in everything that may be printed.
func FuzzRedact(f *testing.F) {
	for _, s := range []string{
		"", "@", ":", "/", "?", "#", "%", "%41", " ", ",", "[", "]", ";", "&", "=", "@b/c?d=e#f", "123/", "://x:", "//x:",
		"x?ttl=", "1?ttl=", "1&ttl=", "x?pass=", "x?pass=y@", "tcp(x)/", "@tcp(a)/", "ä", "\x00", "\xff\xfe", "::1", "a\nb\n",
	} {
		f.Add(s, "", "redis", "me", "h:1/0?ttl=1s")
		f.Add("", s, "mysqls", "", "[::1]:7,b")
		f.Add(s, s, "my sql", "r%o", "h/\x00?x=y&%zz")
	}
	f.Fuzz(func(t *testing.T, before, after, scheme, user, rest string) {
		password := before + marker + after
		if strings.Contains(scheme+user+rest, "Zq7") || strings.Contains(scheme+user, ":") {
			t.Skip()
		}
		for _, pattern := range []string{
			"{scheme}://{user}:{password}@{rest}",
			"{scheme}://:{password}@{rest}",
			"{scheme}://{password}@{rest}",
			"{scheme}:/{user}:{password}@{rest}",
			"{scheme}{user}:{password}@tcp({rest})/db?x=y",
			"{user}:{password}@unix(/tmp/x.sock)/{rest}",
			"{user}:{password}@/db",
			"host=h user={user} password={password} dbname={rest}",
			"cache:6380,password={password},ssl=True",
			"{scheme}://h/0?password={password}",
			"{scheme}://{user}:x@h/0?password={password}&x=y",
		} {
			for _, written := range []string{password, url.QueryEscape(password), url.PathEscape(password)} {
				if strings.Contains(pattern, "=") && strings.Contains(written, "&") {
					continue // what follows is another parameter by any reading
				}
				if strings.HasPrefix(pattern, "{scheme}://{password}") && strings.Contains(written, ":") {
					continue // what comes before the colon is a user by any reading
				}
				raw := strings.NewReplacer("{scheme}", scheme, "{user}", user, "{password}", written, "{rest}", rest).Replace(pattern)
				for _, text := range []string{openurl.Redact(raw), outcome(raw)} {
					if strings.Contains(text, marker) {
						t.Errorf("%q is printed as %q", raw, text)
					}
				}
			}
		}
	})
}

// outcome is all that opening raw may print.
func outcome(raw string) string {
	u, err := openurl.Parse(raw, schemes...)
	if err != nil {
		return err.Error()
	}
	u.HostsDefault("1")
	u.Int("ttl", 1, 1, 2)
	if err := u.Err(); err != nil {
		return err.Error() + u.String()
	}
	return u.String()
}
