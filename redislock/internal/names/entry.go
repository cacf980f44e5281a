package names

import (
	"strconv"
	"strings"
	"time"
)

// Entry is what the key of a held name contains.
type Entry struct {
	Owner    string
	Token    int64
	Acquired time.Time
	Holder   string
}

// ParseEntry reads "owner token µs holder". It reports false for what the scripts never write.
func ParseEntry(text string) (e Entry, ok bool) {
	part := strings.SplitN(text, " ", 4)
	if len(part) != 4 {
		return e, false
	}
	var micros int64
	var err1, err2 error
	e.Token, err1 = strconv.ParseInt(part[1], 10, 64)
	micros, err2 = strconv.ParseInt(part[2], 10, 64)
	e.Owner, e.Acquired, e.Holder = part[0], time.UnixMicro(micros), part[3]
	return e, err1 == nil && err2 == nil
}
