package main

import "testing"

func TestSoleAddress(t *testing.T) {
	for _, tc := range []struct{ url, want string }{
		{"redis://h", "h:6379"},
		{"redis://u:p@h:1/0?ttl=3s", "h:1"},
		{"mysql://u:p@[::1]/db?create=true", "[::1]:3306"},
		{"zk://h/chroot", "h:2181"},
		{"etcd://h:1", "h:1"},
		{"etcd://a:1,b:2", ""},
		{"zk://a:1,b:2/chroot", ""},
		{"rediss://h", ""},
		{"redis://h?tls_ca=x", "h:6379"}, // refused by Open: the scheme is not that of TLS
		{"redis://h?cluster=true", ""},
		{"redis+sentinel://h?master=m", ""},
		{"mem://x", ""},
		{"nonsense", ""},
		{"redis://", "localhost:6379"},
	} {
		if got := soleAddress(tc.url); got != tc.want {
			t.Errorf("soleAddress(%q) = %q, want %q", tc.url, got, tc.want)
		}
	}
}
