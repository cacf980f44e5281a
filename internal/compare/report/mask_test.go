package report

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestMaskReachesEveryText(t *testing.T) {
	r := &Report{
		Problems: []string{"x"}, Command: []string{"x"}, Machine: Machine{CPU: "x"}, Missing: map[string]string{"x": "x"},
		Backends: []*Backend{{
			Name: "x", Failed: map[string]string{"x": "x"}, Notes: []string{"x"}, Facts: []Fact{{Text: "x"}},
			Safety: map[Hazard]Outcome{"x": {Text: "x", Detail: "x"}}, Figures: map[Figure]Series{"x": {1}},
		}},
	}
	r.Mask(func(s string) string { return strings.ReplaceAll(s, "x", "y") })
	var b strings.Builder
	if err := json.NewEncoder(&b).Encode(r); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{`"x"`, `"x`} {
		if strings.Contains(b.String(), text) {
			t.Errorf("not masked: %s", &b)
		}
	}
	if got := r.Backends[0].Figures; !reflect.DeepEqual(got, map[Figure]Series{"y": {1}}) {
		t.Errorf("figures are %v", got)
	}
}
