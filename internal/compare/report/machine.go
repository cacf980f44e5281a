package report

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/distlock-go/distlock/internal/openurl"
)

// redactCommand returns a command line without the passwords in its URLs. It leaves out
// the folder of the program too: under "go run" the folder is random.
func redactCommand(args []string) []string {
	var out []string
	for i, arg := range args {
		flag, value, isFlag := strings.Cut(arg, "=")
		switch {
		case i == 0:
			arg = filepath.Base(arg)
		case strings.HasPrefix(arg, "-") && isFlag && hasSecret(value):
			arg = flag + "=" + openurl.Redact(value)
		case hasSecret(arg):
			arg = openurl.Redact(arg)
		}
		out = append(out, arg)
	}
	return out
}

// hasSecret reports whether an argument can have a password in it.
func hasSecret(arg string) bool { return strings.Contains(arg, "://") || strings.Contains(arg, "@") }

// cpuModel returns the processor's name as Linux tells it, or "".
func cpuModel(cpuinfo string) string {
	text, err := os.ReadFile(cpuinfo)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
