package peers

import (
	"slices"
	"testing"
)

func TestTemplate(t *testing.T) {
	was := blanks{name: "recorded", owner: newOwner(), token: "1700000000000001"}
	request := []any{"evalsha", "digest", 2, "distlock:{recorded}", "distlock:{recorded}:token", was.owner, int64(30000),
		was.owner + " " + was.token + " ", "holder", ""}
	other := &blanks{name: "x", owner: newOwner(), token: "42"}
	want := []any{"evalsha", "digest", 2, "distlock:{x}", "distlock:{x}:token", other.owner, int64(30000),
		other.owner + " 42 ", "holder", ""}
	filled := newTemplate(request, was)
	if got := filled.fill(other); !slices.Equal(got, want) {
		t.Errorf("the request is %v, want %v", got, want)
	}
	if got := filled.fill(&was); !slices.Equal(got, request) {
		t.Errorf("filled with what was recorded the request is %v, want %v", got, request)
	}
	if got := ownerIn(request); got != was.owner {
		t.Errorf("the owner is %q, want %q", got, was.owner)
	}
	if got := ownerIn([]any{"0123456789abcdef0123456789abcdef01234567", 1}); got != "" {
		t.Errorf("%q is an owner", got)
	}
	// A blank of which nothing is known yet is nowhere.
	if got := newTemplate([]any{"ab"}, blanks{name: "a"}).fill(&blanks{name: "c"}); !slices.Equal(got, []any{"cb"}) {
		t.Errorf("without owner and token the request is %v", got)
	}
}
