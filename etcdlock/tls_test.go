package etcdlock

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// testTLS puts TLS in front of a server that has none.
func testTLS(t *testing.T, s *servers.Server) {
	ca := testkit.NewAuthority(t)
	good := ca.Issue(time.Now().Add(time.Hour))
	front := func(c *tls.Config) string {
		c.NextProtos = []string{"h2"}
		return testkit.Front(t, c, s.Addr())
	}
	plain := front(&tls.Config{Certificates: []tls.Certificate{good}})
	expired := front(&tls.Config{Certificates: []tls.Certificate{ca.Issue(time.Now().Add(-time.Minute))}})
	mutual := front(&tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool()})
	trust := "?tls_ca=" + ca.File
	cert, key := ca.Files()
	other, otherKey := testkit.NewAuthority(t).Files()
	mine := trust + "&tls_cert=" + cert + "&tls_key=" + key

	for _, user := range []string{"", "u:s3cret@"} {
		for what, tt := range map[string]struct{ url, part string }{
			"wrong CA":                 {"etcds://" + user + plain, "certificate signed by unknown authority"},
			"wrong name":               {"etcds://" + user + plain + trust + "&tls_server_name=other", "valid for"},
			"expired":                  {"etcds://" + user + expired + trust, "expired"},
			"no client certificate":    {"etcds://" + user + mutual + trust, "certificate"},
			"wrong client certificate": {"etcds://" + user + mutual + trust + "&tls_cert=" + other + "&tls_key=" + otherKey, "certificate"},
			"TLS to plaintext":         {"etcds://" + user + s.Addr() + trust, "does the server speak TLS?"},
			"plaintext to TLS":         {"etcd://" + user + plain, "does the server want TLS, as etcds:// means, "},
		} {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				testkit.Within(t, defaultDial/2, func() { wantFailure(t, t.Context(), tt.url, nil, tt.part) })
			})
		}
	}
	for _, url := range []string{
		"etcds://" + plain + trust,
		"etcd://" + plain + trust + "&tls=on",
		"etcds://" + plain + "?tls=insecure-skip-verify",
		"etcds://" + mutual + mine,
	} {
		locker, err := Open(t.Context(), url, nil)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if lock, err := locker.Lock(t.Context(), "x"); err != nil || lock.Unlock(t.Context()) != nil {
			t.Errorf("%s: %v", url, err)
		}
		testkit.Should(t, locker.Close())
	}
}
