package render

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// parameters lists those of the run for a note, by their names in JSON. It leaves out
// those that are off. New ones show up without being listed again.
func (r doc) parameters() string {
	text, err := json.Marshal(r.Params)
	values := make(map[string]any)
	if err == nil {
		err = json.Unmarshal(text, &values)
	}
	if err != nil {
		return err.Error()
	}
	var list []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		value := strings.Trim(fmt.Sprint(values[key]), "[]")
		name, isTime := strings.CutSuffix(key, "_ns")
		if ns, ok := values[key].(float64); ok && isTime {
			value = time.Duration(ns).String()
		}
		if !slices.Contains([]string{"", "0", "0s", "<nil>"}, value) {
			list = append(list, strings.ReplaceAll(name, "_", " ")+" "+value)
		}
	}
	return clean(strings.Join(list, ", "))
}
