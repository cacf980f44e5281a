package compare

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// values returns the parameters by the names that they have in JSON: new ones show
// up in every report, and count for a baseline, without being listed again.
func (p Params) values() map[string]string {
	text, err := json.Marshal(p)
	if err != nil {
		return map[string]string{"error": err.Error()}
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return map[string]string{"error": err.Error()}
	}
	values := make(map[string]string)
	for key, v := range raw {
		var ns int64
		var list []string
		name, isTime := strings.CutSuffix(key, "_ns")
		if isTime && json.Unmarshal(v, &ns) == nil {
			values[name] = time.Duration(ns).String()
			continue
		}
		if json.Unmarshal(v, &list) == nil {
			values[key] = strings.Join(list, " ")
			continue
		}
		values[key] = strings.Trim(string(v), `"`)
	}
	return values
}

// parameters lists them for a note, but for those that are off.
func (r *Report) parameters() string {
	values := r.Params.values()
	var list []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if slices.Contains([]string{"", "0", "0s"}, values[key]) {
			continue
		}
		list = append(list, fmt.Sprintf("%s %s", strings.ReplaceAll(key, "_", " "), values[key]))
	}
	return clean(strings.Join(list, ", "))
}
