package openurl_test

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/distlock-go/distlock/internal/testkit"
)

func TestTLSModes(t *testing.T) {
	for raw, want := range map[string]struct{ on, insecure bool }{
		"redis://h":                            {false, false},
		"redis://h?tls=off":                    {false, false},
		"redis://h?tls=on":                     {true, false},
		"rediss://h":                           {true, false},
		"zks://h?tls=on":                       {true, false},
		"mysqls://h?tls=insecure-skip-verify":  {true, true},
		"redis://h?tls=insecure-skip-verify":   {true, true},
		"rediss://h?tls_server_name=db.intern": {true, false},
	} {
		u := parse(t, raw)
		config := u.TLS()
		if err := u.Err(); err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if (config != nil) != want.on {
			t.Errorf("%s: TLS is on: %v, want %v", raw, config != nil, want.on)
			continue
		}
		if config != nil && (config.InsecureSkipVerify != want.insecure || config.MinVersion < tls.VersionTLS12) {
			t.Errorf("%s: skips verification: %v, lowest version %x", raw, config.InsecureSkipVerify, config.MinVersion)
		}
	}
	if config := parse(t, "rediss://h?tls_server_name=db.intern").TLS(); config.ServerName != "db.intern" {
		t.Errorf("the server's name is %q", config.ServerName)
	}
}

func TestTLSRefuses(t *testing.T) {
	authority := testkit.NewAuthority(t)
	ca := authority.File
	cert, key := authority.Files()
	for raw, want := range map[string]string{
		"rediss://h?tls=off":                                  "one of on, insecure-skip-verify",
		"redis://h?tls=skip-verify":                           "one of off, on, insecure-skip-verify",
		"redis://h?tls_ca=" + ca:                              "need tls=on",
		"redis://h?tls_server_name=x":                         "need tls=on",
		"rediss://h?tls=insecure-skip-verify&tls_ca=" + ca:    "contradict",
		"rediss://h?tls_cert=" + cert:                         "need each other",
		"rediss://h?tls_key=" + key:                           "need each other",
		"rediss://h?tls_ca=/does/not/exist":                   "tls_ca",
		"rediss://h?tls_ca=" + key:                            "no certificate",
		"rediss://h?tls_key=/none&tls_cert=" + cert:           "tls_key",
		"rediss://h?tls_ca=" + ca + "&tls_verify=yes":         `unknown parameter "tls_verify"`,
		"rediss://h?tls_servername=x":                         `did you mean "tls_server_name"?`,
		"rediss://h?tls_cert=" + cert + "&tls_key=" + cert:    "tls_cert and tls_key",
		"redis://h?tls=off&tls_cert=" + cert + "&tls_key=key": "need tls=on",
	} {
		u := parse(t, raw)
		u.TLS()
		wantInvalid(t, u.Err(), want)
	}
}

// The configuration is put to use: two sides that only trust the test's own root
// shake hands, and one that trusts the system's roots refuses.
func TestTLSHandshake(t *testing.T) {
	authority := testkit.NewAuthority(t)
	ca := authority.File
	cert, key := authority.Files()
	u := parse(t, "rediss://h?tls_server_name=localhost&tls_ca="+ca+"&tls_cert="+cert+"&tls_key="+key)
	config := u.TLS()
	testkit.Must(t, u.Err())
	server := &tls.Config{Certificates: config.Certificates, ClientCAs: config.RootCAs, ClientAuth: tls.RequireAndVerifyClientCert}
	if err := handshake(t, server, config); err != nil {
		t.Errorf("with the root: %v", err)
	}
	server = &tls.Config{Certificates: config.Certificates}
	if err := handshake(t, server, parse(t, "rediss://h?tls_server_name=localhost").TLS()); err == nil {
		t.Error("a certificate of an unknown root was accepted")
	}
	if err := handshake(t, server, parse(t, "rediss://h?tls_server_name=other&tls_ca="+ca).TLS()); err == nil {
		t.Error("a certificate for another name was accepted")
	}
	if err := handshake(t, server, parse(t, "rediss://h?tls=insecure-skip-verify").TLS()); err != nil {
		t.Errorf("without verification: %v", err)
	}
}

// handshake uses a real connection: a net.Pipe has no buffer. Over it, a client
// that refuses and a server that is still writing would wait for each other.
func handshake(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer listener.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		tls.Server(conn, server).Write([]byte("x")) // its failure shows at the client
	}()
	defer func() { <-served }()
	conn, err := net.DialTimeout("tcp", listener.Addr().String(), 10*time.Second)
	testkit.Must(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	// With TLS 1.3 a client learns that its certificate is refused when it reads.
	_, err = tls.Client(conn, client).Read(make([]byte, 1))
	return err
}
