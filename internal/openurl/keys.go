package openurl

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// harmlessKey finds names of parameters that no backend has but that may be shown: such
// a word in the place of a name is no password.
var harmlessKey = regexp.MustCompile(`(?i)^(?:pass(?:word|wd)?|pwd?|secret|token|auth|user(?:name)?|host|port|db|database)$`)

// showKey reports whether the name of a parameter may be shown: it is one that some
// backend has, or near to one, or clearly a word.
func showKey(key string) bool {
	return len(Nearest(key, shown)) > 0 || harmlessKey.MatchString(key)
}

// plainKey finds what is written like the name of a parameter. A name with a digit is not shown: digits are what
// passwords have, and names of parameters hardly ever.
var plainKey = regexp.MustCompile(`^[A-Za-z][A-Za-z_-]*$`)

// showFirstKey is showKey for the first parameter that is not known. A URL in which it is read has a well-formed
// query and no "@" behind the host, so it is no part of a password with an unescaped "?" before the host. What comes
// after the value of an unknown parameter may be the rest of a password with an unescaped "&", and is not shown.
func showFirstKey(key string) bool { return showKey(key) || plainKey.MatchString(key) }

// redactKeys hides the names of parameters in a query if they may be passwords. The
// values have been redacted before.
func redactKeys(query string) string {
	show := showFirstKey
	return param.ReplaceAllStringFunc(query, func(pair string) string {
		part := param.FindStringSubmatch(pair)
		key, err := url.QueryUnescape(part[2])
		if err != nil || !show(key) {
			pair = pair[:1] + mask
		}
		if !slices.Contains(shown, part[2]) {
			show = showKey
		}
		return pair
	})
}

// instead has what the parameters of client libraries are called here, and "" for those that a lock does not need.
// The names are in lower case without "_" and "-".
var instead = map[string]string{
	"sslmode": "tls", "ssl": "tls", "usessl": "tls", "sslrootcert": "tls_ca", "sslca": "tls_ca", "cacert": "tls_ca",
	"sslcert": "tls_cert", "sslkey": "tls_key", "skipverify": "tls",
	"connecttimeout": "dial_timeout", "connectiontimeout": "dial_timeout", "timeout": "dial_timeout",
	"readtimeout": "request_timeout", "writetimeout": "request_timeout", "commandtimeout": "request_timeout",
	"poolmaxconns": "max_conns", "maxopenconns": "max_conns", "maxactive": "pool_size", "mastername": "master",

	"parsetime": "", "charset": "", "loc": "", "collation": "", "interpolateparams": "", "multistatements": "",
	"clientfoundrows": "", "allownativepasswords": "", "applicationname": "", "targetsessionattrs": "", "protocol": "",
}

var separators = strings.NewReplacer("_", "", "-", "")

// hint says what to write for the parameter of a client library, if that is known.
func (e *UnknownParamError) hint() string {
	ours, ok := instead[strings.ToLower(separators.Replace(e.Name))]
	if ok && ours == "" {
		return "leave it out: a lock does not need it"
	}
	for _, p := range e.Known {
		if ok && p.Name == ours {
			return strings.TrimSuffix(fmt.Sprintf("here it is %q, with the values %s", ours, p.Allowed), ", with the values ")
		}
	}
	if len(e.Nearest) > 0 {
		return "did you mean " + quoted(e.Nearest) + "?"
	}
	return ""
}
