package main

import (
	"strings"

	"github.com/distlock-go/distlock/internal/servers"
)

// backendURL has the table made on a MySQL server that has none yet.
func backendURL(s *servers.Server) string {
	switch {
	case s.Kind() != servers.MySQL || !s.Controlled():
		return s.URL()
	case strings.Contains(s.URL(), "?"):
		return s.URL() + "&create=true"
	}
	return s.URL() + "?create=true"
}
