package main

import "github.com/distlock-go/distlock/internal/servers"

// backendURL has the table made on a server that was started here, and has none yet.
func backendURL(s *servers.Server) string {
	if s.Controlled() {
		return s.LockURL()
	}
	return s.URL()
}
