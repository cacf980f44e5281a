package mysqllock

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // PEM
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{cert: &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority " + randomText()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}}
	a.file, a.key = a.sign(t, a.cert)
	return a
}

// sign returns the file of a certificate, which it makes, and the key.
func (a *authority) sign(t *testing.T, template *x509.Certificate) (file string, key *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer := a.key
	if signer == nil { // its own
		signer = key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	return writePEM(t, "CERTIFICATE", raw), key
}

func writePEM(t *testing.T, kind string, raw []byte) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "a.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// issue returns the files of a certificate for 127.0.0.1, and of its key.
func (a *authority) issue(t *testing.T) (cert, keyFile string) {
	t.Helper()
	cert, key := a.sign(t, &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "issued"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return cert, writePEM(t, "PRIVATE KEY", raw)
}

// params returns the parameters of a URL that name a certificate of the authority.
func (a *authority) params(t *testing.T) string {
	t.Helper()
	cert, key := a.issue(t)
	return "&tls_cert=" + cert + "&tls_key=" + key
}

// oddPassword has what URLs, DSNs and SQL treat in special ways.
const oddPassword = `p@ss:w/o?r#d% ü"&=x`

// TestDocumentedRights gives a user the rights of the document, no more, and takes a lock
// through all that can happen to it.
func TestDocumentedRights(t *testing.T) {
	t.Parallel()
	admin := adminPool(t)
	text, err := os.ReadFile("../docs/mysql.md")
	if err != nil {
		t.Fatal(err)
	}
	grants := regexp.MustCompile(`(?m)^GRANT .*;`).FindAllString(string(text), -1)
	if len(grants) != 3 {
		t.Fatalf("the document has %d lines of rights, want 3", len(grants))
	}
	c := config(t, server(t).URL())
	table := freshTable(t)
	user := "u" + randomText()[:20]
	exec := func(statement string) {
		t.Helper()
		if _, err := admin.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	exec("CREATE USER '" + user + "'@'%' IDENTIFIED BY '" + oddPassword + "'")
	defer exec("DROP USER '" + user + "'@'%'")
	schema, err := Schema(c.DBName + "." + table)
	if err != nil {
		t.Fatal(err)
	}
	exec(schema)
	grant := func(line string) {
		exec(strings.NewReplacer("app.distlock", c.DBName+"."+table, "app.*", c.DBName+".*", "'locker'", "'"+user+"'").Replace(line))
	}
	target := (&url.URL{Scheme: "mysql", User: url.UserPassword(user, oddPassword), Host: c.Addr, Path: c.DBName}).String()
	grant(grants[0])
	l, err := Open(t.Context(), target, &Options{Table: table})
	if err != nil {
		t.Fatalf("Open with the documented rights: %v", err)
	}
	defer l.Close()
	held, err := l.Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	locks := held.(*Lock).claim.driver.locks
	takesLocks(t, locks, 1)
	next := handOff(t, held, l, func() {
		testkit.Until(t, "the next waits for the named lock", func() bool { return statementsWith(t, admin, locks.sql.namedLock("n").lock) > 0 })
	})
	if err := next.Extend(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
	if err := l.Break(t.Context(), "n", next.Token()); err != nil {
		t.Error(err)
	}
	if _, err := l.List(t.Context(), ""); err != nil {
		t.Error(err)
	}
	testBatch(t, held.(*Lock).claim.driver)
	ageFree(t, held.(*Lock).claim.driver)
	if _, err := l.Sweep(t.Context(), time.Millisecond); err == nil || !strings.Contains(err.Error(), "docs/mysql.md") {
		t.Errorf("Sweep without the right to: %v, want the page", err)
	}
	fresh := freshTable(t)
	if _, err := Open(t.Context(), target, &Options{Table: fresh, Create: true}); err == nil || !strings.Contains(err.Error(), "docs/mysql.md") {
		t.Errorf("Open that may not create: %v, want the page", err)
	} else if strings.Contains(err.Error(), "p@ss") {
		t.Errorf("the error shows the password: %v", err)
	}
	grant(grants[1])
	if _, err := l.Sweep(t.Context(), time.Millisecond); err != nil {
		t.Errorf("Sweep: %v", err)
	}
}

// TestClientCertificate opens a server that wants one.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	ca, stranger := newAuthority(t), newAuthority(t)
	cert, key := ca.issue(t)
	s := servers.ConfiguredForTest(t, servers.MySQL, "ssl-ca="+ca.file, "ssl-cert="+cert, "ssl-key="+key)
	admin := poolOf(t, config(t, s.AdminURL()))
	for _, statement := range []string{
		"CREATE USER 'locker'@'%' IDENTIFIED BY '" + oddPassword + "' REQUIRE X509", "GRANT ALL ON distlock.* TO 'locker'@'%'",
	} {
		if _, err := admin.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	base := fmt.Sprintf("mysqls://locker:%s@%s/distlock?create=true&tls_ca=%s", url.QueryEscape(oddPassword), s.Addr(), ca.file)
	base = strings.ReplaceAll(base, "+", "%20")
	locker, err := Open(t.Context(), base+ca.params(t), nil)
	if err != nil {
		t.Fatalf("Open with a client certificate: %v", err)
	}
	lock, err := locker.Lock(t.Context(), "n")
	if err != nil {
		t.Error(err)
	} else if err := lock.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if err := locker.Close(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ what, url, want string }{
		{"without one", base, "tls: |TLS|denied"},
		{"with another's", base + stranger.params(t), "tls: |TLS|denied"},
		{"of a server that has another's", strings.ReplaceAll(base, ca.file, stranger.file), "certificate signed by unknown authority"},
	} {
		_, err := Open(t.Context(), c.url, nil)
		t.Logf("%s: %v", c.what, err)
		if err == nil || !regexp.MustCompile(c.want).MatchString(err.Error()) {
			t.Errorf("Open %s: %v, want the reason", c.what, err)
		}
	}
}
