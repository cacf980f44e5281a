package compare

import (
	"strings"
	"testing"

	"github.com/distlock-go/distlock/driver"
)

func TestFactsOfEveryDriver(t *testing.T) {
	for backend := range storeFacts {
		fs := facts(driver.Capabilities{Backend: backend, Durability: driver.Restart})
		for i, f := range fs {
			if f.ID != factTitles[i].id || f.Title == "" || f.Text == "" {
				t.Errorf("%s: fact %d is %+v, want %s", backend, i, f, factTitles[i].id)
			}
		}
		if len(fs) != len(factTitles) {
			t.Errorf("%s has %d facts of %d", backend, len(fs), len(factTitles))
		}
	}
	if fs := facts(driver.Capabilities{Backend: "else"}); len(fs) != 3 {
		t.Errorf("of a driver that is not known here: %v", fs)
	}
}

// The summary of a report looks for this word.
func TestVolatileIsSaid(t *testing.T) {
	if text := durabilityFact(driver.Volatile); !strings.HasPrefix(text, "volatile: ") {
		t.Errorf("a volatile store is %q", text)
	}
}

// A release tells its version in reports, too.
func TestVersion(t *testing.T) {
	defer func(v string) { version = v }(version)
	version = "v1.2.3"
	if v := Version(); v != "v1.2.3" {
		t.Errorf("the version is %q, want v1.2.3", v)
	}
}
