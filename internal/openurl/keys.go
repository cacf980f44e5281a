package openurl

import (
	"net/url"
	"regexp"
)

// harmlessKey finds names of parameters that no backend has but that may be shown: such
// a word in the place of a name is no password.
var harmlessKey = regexp.MustCompile(`(?i)^(?:pass(?:word|wd)?|pwd?|secret|token|auth|user(?:name)?|host|port|db|database)$`)

// showKey reports whether the name of a parameter may be shown: it is one that some
// backend has, or near to one, or clearly a word.
func showKey(key string) bool {
	return len(Nearest(key, shown)) > 0 || harmlessKey.MatchString(key)
}

// redactKeys hides the names of parameters in a query if they may be passwords. The
// values have been redacted before.
func redactKeys(query string) string {
	return param.ReplaceAllStringFunc(query, func(pair string) string {
		part := param.FindStringSubmatch(pair)
		if key, err := url.QueryUnescape(part[2]); err != nil || !showKey(key) {
			return pair[:1] + mask
		}
		return pair
	})
}
