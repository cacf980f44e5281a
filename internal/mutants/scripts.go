package mutants

import (
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"strings"
	"unicode"
)

const oneLock = "the two names are one lock"

// scriptMutants store names so that some of them meet.
func scriptMutants() []Mutant {
	return []Mutant{
		{
			Name: "Astral", Flaw: "takes all characters beyond U+FFFF for one",
			Seen:     "utf8mb4_general_ci and utf8mb4_unicode_ci of MySQL",
			KilledBy: []Kill{{"names/beyond-bmp", oneLock}},
			design: namesFlaw(func(s string) string {
				return strings.Map(func(r rune) rune {
					if r > 0xffff {
						return 0xfffd
					}
					return r
				}, s)
			}),
		},
		{
			Name: "FoldScripts", Flaw: "does not tell the cases of letters beyond ASCII apart",
			KilledBy: []Kill{{"names/scripts", oneLock}},
			design: namesFlaw(func(s string) string {
				return strings.Map(func(r rune) rune {
					for least := r; r >= 0x80; {
						if r = unicode.SimpleFold(r); r <= least {
							least = r
							return least
						}
					}
					return r
				}, s)
			}),
		},
		{
			Name: "Widths", Flaw: "takes wide letters for narrow ones",
			Seen:     "collations of Japanese, and NFKC",
			KilledBy: []Kill{{"names/scripts", oneLock}},
			design: namesFlaw(func(s string) string {
				return strings.Map(func(r rune) rune {
					if r >= 0xff01 && r <= 0xff5e {
						return r - 0xfee0
					}
					return r
				}, s)
			}),
		},
	}
}

// shortMutants keep less of a name than it needs to be told from others.
func shortMutants() []Mutant {
	return []Mutant{
		{
			Name: "HeadAndTail", Flaw: "keeps the first and the last hundred bytes of a long name, and its length",
			KilledBy: []Kill{{"names/middle", oneLock}},
			design: namesFlaw(func(s string) string {
				if len(s) <= 200 {
					return s
				}
				return strings.ToValidUTF8(s[:100]+fmt.Sprint(len(s))+s[len(s)-100:], "?")
			}),
		},
		{
			Name: "CString", Flaw: "ends a name at its first NUL",
			KilledBy: []Kill{{"names/terminated", oneLock}},
			design: namesFlaw(func(s string) string {
				head, _, ok := strings.Cut(s, "\x00")
				if ok && head == "" {
					return s
				}
				return head
			}),
		},
		{
			Name: "Checksum", Flaw: "stores a name by its CRC-32",
			Seen:     "advisory locks of SQL, which take a number",
			KilledBy: []Kill{{"names/hashes", oneLock}},
			design:   namesFlaw(func(s string) string { return fmt.Sprint(crc32.ChecksumIEEE([]byte(s))) }),
		},
		{
			Name: "Buckets", Flaw: "has a lock for each of 65,536 hashes, not for each name",
			KilledBy: []Kill{{"names/many", oneLock}},
			design: namesFlaw(func(s string) string {
				h := fnv.New32a()
				_, _ = h.Write([]byte(s))
				return fmt.Sprint(h.Sum32() & 0xffff)
			}),
		},
	}
}
