package mysqllock

import (
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/servers"
	"github.com/distlock-go/distlock/internal/testkit"
)

// params returns the parameters of a URL that name a certificate of the authority.
func params(ca *testkit.Authority) string {
	cert, key := ca.Files()
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
	testkit.Must(t, err)
	grants := regexp.MustCompile(`(?m)^GRANT .*;`).FindAllString(string(text), -1)
	if len(grants) != 3 {
		t.Fatalf("the document has %d lines of rights, want 3", len(grants))
	}
	c := config(t, server(t).URL())
	table := freshTable(t)
	user := "u" + testkit.Owner()[:20]
	exec := func(statement string) {
		t.Helper()
		if _, err := admin.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	exec("CREATE USER '" + user + "'@'%' IDENTIFIED BY '" + oddPassword + "'")
	defer exec("DROP USER '" + user + "'@'%'")
	schema, err := Schema(c.DBName + "." + table)
	testkit.Must(t, err)
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
	testkit.Must(t, err)
	locks := held.(*Lock).claim.driver.locks
	takesLock(t, held.(*Lock).claim)
	next := handOff(t, held, l, func() {
		testkit.Until(t, "the next waits for the named lock", func() bool { return statementsWith(t, admin, locks.sql.namedLock("n").lock) > 0 })
	})
	testkit.Should(t, next.Extend(t.Context(), time.Minute))
	testkit.Should(t, l.Break(t.Context(), "n", next.Token()))
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
	ca, stranger := testkit.NewAuthority(t), testkit.NewAuthority(t)
	cert, key := ca.Files()
	s := servers.ConfiguredForTest(t, servers.MySQL, "ssl-ca="+ca.File, "ssl-cert="+cert, "ssl-key="+key)
	admin := poolOf(t, config(t, s.AdminURL()))
	for _, statement := range []string{
		"CREATE USER 'locker'@'%' IDENTIFIED BY '" + oddPassword + "' REQUIRE X509", "GRANT ALL ON distlock.* TO 'locker'@'%'",
	} {
		if _, err := admin.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	base := fmt.Sprintf("mysqls://locker:%s@%s/distlock?create=true&tls_ca=%s", url.QueryEscape(oddPassword), s.Addr(), ca.File)
	base = strings.ReplaceAll(base, "+", "%20")
	locker, err := Open(t.Context(), base+params(ca), nil)
	if err != nil {
		t.Fatalf("Open with a client certificate: %v", err)
	}
	lock, err := locker.Lock(t.Context(), "n")
	if err != nil {
		t.Error(err)
	} else if err := lock.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	testkit.Should(t, locker.Close())
	for _, c := range []struct{ what, url, want string }{
		{"without one", base, "tls: |TLS|denied"},
		{"with another's", base + params(stranger), "tls: |TLS|denied"},
		{"of a server that has another's", strings.ReplaceAll(base, ca.File, stranger.File), "certificate signed by unknown authority"},
	} {
		_, err := Open(t.Context(), c.url, nil)
		t.Logf("%s: %v", c.what, err)
		if err == nil || !regexp.MustCompile(c.want).MatchString(err.Error()) {
			t.Errorf("Open %s: %v, want the reason", c.what, err)
		}
	}
}
