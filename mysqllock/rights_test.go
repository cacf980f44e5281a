package mysqllock

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
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
	a := new(authority)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority " + randomText()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.key, a.cert = sign(t, template, template, nil)
	a.file = filepath.Join(t.TempDir(), "ca.pem")
	writePEM(t, a.file, "CERTIFICATE", a.cert.Raw)
	return a
}

// sign makes a key and a certificate for it, signed by itself if signer is nil.
func sign(t *testing.T, template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if signer == nil {
		signer = key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return key, cert
}

func writePEM(t *testing.T, file, kind string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (a *authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, cert := sign(t, &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, a.cert, a.key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// issueFiles issues a certificate for a client and returns the parameters that name it.
func (a *authority) issueFiles(t *testing.T, name string) (params string) {
	t.Helper()
	pair, dir := a.issue(t, name), t.TempDir()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, cert, "CERTIFICATE", pair.Certificate[0])
	writePEM(t, keyFile, "PRIVATE KEY", key)
	return "&tls_cert=" + cert + "&tls_key=" + keyFile
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
	parts := strings.FieldsFunc(ca.issueFiles(t, "127.0.0.1"), func(r rune) bool { return r == '&' || r == '=' })
	s := servers.ConfiguredForTest(t, servers.MySQL, "ssl-ca="+ca.file, "ssl-cert="+parts[1], "ssl-key="+parts[3])
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
	locker, err := Open(t.Context(), base+ca.issueFiles(t, "client"), nil)
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
	for what, wrong := range map[string]string{"without one": base, "with another's": base + stranger.issueFiles(t, "client")} {
		_, err := Open(t.Context(), wrong, nil)
		t.Logf("%s: %v", what, err)
		if err == nil || !strings.Contains(err.Error(), "tls: ") && !strings.Contains(err.Error(), "TLS") && !strings.Contains(err.Error(), "denied") {
			t.Errorf("Open %s: %v, want the reason", what, err)
		}
	}
}
