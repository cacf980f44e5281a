package zklock

import (
	"crypto/tls"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/testkit"
)

// TestTLS: zks means TLS. A server that wants a certificate of its clients gets it, and without one, or with an expired
// one of the server, the error says what is wrong. TestWhyNoServer has the other ways to get it wrong.
func TestTLS(t *testing.T) {
	t.Parallel()
	ca := testkit.NewAuthority(t)
	trust := "?tls_ca=" + url.QueryEscape(ca.File)
	cert, key := ca.Files()
	mine := trust + "&tls_cert=" + url.QueryEscape(cert) + "&tls_key=" + url.QueryEscape(key)
	plain, mutual := tlsFront(t, ca, tls.NoClientCert, time.Hour), tlsFront(t, ca, tls.RequireAndVerifyClientCert, time.Hour)
	for _, url := range []string{plain + freshPrefix() + trust, mutual + freshPrefix() + mine} {
		l, err := Open(t.Context(), url, nil)
		testkit.Must(t, err)
		unlock(t, lock(t, l, "x"))
		testkit.Should(t, l.Close())
	}
	if _, err := Open(t.Context(), mutual+trust, nil); err == nil || !strings.Contains(err.Error(), "certificate") || !strings.Contains(err.Error(), strings.TrimPrefix(mutual, "zks://")) {
		t.Error("without a client certificate:", err)
	}
	if _, err := Open(t.Context(), tlsFront(t, ca, tls.NoClientCert, -time.Hour)+trust, nil); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Error("an expired certificate:", err)
	}
}

// tlsFront is a TLS port in front of the server, with a certificate that ends in so long. It returns the URL without its
// parameters.
func tlsFront(t *testing.T, ca *testkit.Authority, clients tls.ClientAuthType, ends time.Duration) (url string) {
	t.Helper()
	return "zks://" + testkit.Front(t, &tls.Config{
		Certificates: []tls.Certificate{ca.Issue(time.Now().Add(ends))},
		ClientAuth:   clients,
		ClientCAs:    ca.Pool(),
	}, server(t).Addr())
}
