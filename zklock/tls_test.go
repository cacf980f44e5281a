package zklock

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestTLS: zks means TLS, verified for the dialled host.
func TestTLS(t *testing.T) {
	t.Parallel()
	addr, ca := tlsFront(t)
	ours := "zks://" + addr + freshPrefix() + "?tls_ca=" + url.QueryEscape(ca)
	l, err := Open(t.Context(), ours, nil)
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, lock(t, l, "x"))
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	for what, url := range map[string]string{
		"an unknown authority": strings.Split(ours, "?")[0],
		"another name":         ours + "&tls_server_name=elsewhere",
		"no TLS":               "zk" + strings.TrimPrefix(strings.Split(ours, "?")[0], "zks") + "?dial_timeout=1s",
	} {
		if l, err := Open(t.Context(), url, nil); err == nil {
			l.Close()
			t.Errorf("%s: connected", what)
		}
	}
}

// TestClientCertificate: a server that wants a certificate of its clients gets it, and
// without one, or with an expired one of its own, the error says what is wrong.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	addr, ca, key := tlsFrontWith(t, tls.RequireAndVerifyClientCert, time.Now().Add(time.Hour))
	ours := "zks://" + addr + freshPrefix() + "?tls_ca=" + url.QueryEscape(ca)
	l, err := Open(t.Context(), ours+"&tls_cert="+url.QueryEscape(ca)+"&tls_key="+url.QueryEscape(key), nil)
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, lock(t, l, "x"))
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Open(t.Context(), ours, nil); err == nil || !strings.Contains(err.Error(), "certificate") || !strings.Contains(err.Error(), addr) {
		t.Error("without a client certificate:", err)
	}
	addr, ca, _ = tlsFrontWith(t, tls.NoClientCert, time.Now().Add(-time.Hour))
	if _, err := Open(t.Context(), "zks://"+addr+"?tls_ca="+url.QueryEscape(ca), nil); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Error("an expired certificate:", err)
	}
}

// tlsFront is a TLS port in front of the server, for 127.0.0.1, and a file with the
// authority to trust.
func tlsFront(t *testing.T) (addr, ca string) {
	t.Helper()
	addr, ca, _ = tlsFrontWith(t, tls.NoClientCert, time.Now().Add(time.Hour))
	return addr, ca
}

// tlsFrontWith is a tlsFront with a certificate good until then. The certificate is its
// own authority. With its key, it is good for clients as well.
func tlsFrontWith(t *testing.T, clients tls.ClientAuthType, until time.Time) (addr, ca, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	ca, keyFile = filepath.Join(t.TempDir(), "ca.pem"), filepath.Join(t.TempDir(), "key.pem")
	for file, block := range map[string]*pem.Block{ca: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) {
		t.Fatal("the certificate is not readable")
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth:   clients,
		ClientCAs:    trusted,
	})
	if err != nil {
		t.Fatal(err)
	}
	target := server(t).Addr()
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { join(client, target) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		running.Wait()
	})
	return listener.Addr().String(), ca, keyFile
}

// join connects client with target until one of them ends.
func join(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(client, server) // it ends with an error when either is closed
		client.Close()
	})
	_, _ = io.Copy(server, client)
	server.Close()
	back.Wait()
}
