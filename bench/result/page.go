package result

import "io"

func Page(w io.Writer, r *Results) error { return nil }
