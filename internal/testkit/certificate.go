package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority issues certificates for localhost, to servers and to clients.
type Authority struct {
	File string // of its own certificate

	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns one that nobody trusts by himself.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t}
	var der []byte
	der, a.key = a.sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "authority " + rand.Text()},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	})
	var err error
	a.cert, err = x509.ParseCertificate(der)
	Must(t, err)
	a.File = a.write("CERTIFICATE", der)
	return a
}

// sign makes a key, and the certificate of it. The first certificate is the authority's own.
func (a *Authority) sign(template *x509.Certificate) (der []byte, key *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(a.t, err)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	der, err = x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	Must(a.t, err)
	return der, key
}

func (a *Authority) write(kind string, der []byte) (file string) {
	a.t.Helper()
	file = filepath.Join(a.t.TempDir(), "a.pem")
	Must(a.t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return file
}

// Pool is of those who trust this authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Issue returns a certificate that is good for two hours, up to end.
func (a *Authority) Issue(end time.Time) tls.Certificate {
	a.t.Helper()
	der, key := a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "localhost"},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   end.Add(-2 * time.Hour),
		NotAfter:    end,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Files returns the files of a certificate that is good now, and of its key.
func (a *Authority) Files() (cert, key string) {
	a.t.Helper()
	issued := a.Issue(time.Now().Add(time.Hour))
	secret, err := x509.MarshalPKCS8PrivateKey(issued.PrivateKey)
	Must(a.t, err)
	return a.write("CERTIFICATE", issued.Certificate[0]), a.write("PRIVATE KEY", secret)
}
