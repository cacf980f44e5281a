package openurl

import (
	"crypto/tls"
	"crypto/x509"
	"os"
)

// TLS returns the TLS configuration that the URL asks for, or nil for plain text.
//
//	tls=off|on|insecure-skip-verify   on by default if the scheme says so (rediss)
//	tls_ca=file                       PEM; trusted instead of the system's roots
//	tls_cert=file, tls_key=file       PEM; shown to a server that asks for one
//	tls_server_name=name              what the certificate must be for
//
// The server is verified unless tls is insecure-skip-verify. Without tls_server_name,
// the name to verify is that of the dialled host: the client library fills it in.
func (u *URL) TLS() *tls.Config {
	words := []string{"off", "on", "insecure-skip-verify"}
	if u.secure {
		words = []string{"on", "insecure-skip-verify"} // "off" would contradict the scheme
	}
	mode := u.OneOf("tls", words...)
	ca, cert, key := u.Text("tls_ca", ""), u.Text("tls_cert", ""), u.Text("tls_key", "")
	name := u.Text("tls_server_name", "")
	switch {
	case mode == "off" && ca+cert+key+name != "":
		u.fail("the parameters tls_ca, tls_cert, tls_key and tls_server_name need tls=on")
	case mode == "insecure-skip-verify" && ca+name != "":
		u.fail("the parameters tls_ca and tls_server_name contradict tls=insecure-skip-verify")
	case (cert == "") != (key == ""):
		u.fail("the parameters tls_cert and tls_key need each other")
	}
	if mode == "off" || u.err != nil {
		return nil
	}
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         name,
		InsecureSkipVerify: mode == "insecure-skip-verify",
	}
	if ca != "" {
		config.RootCAs = u.readRoots(ca)
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			u.fail("the parameters tls_cert and tls_key: %v", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

func (u *URL) readRoots(file string) *x509.CertPool {
	pem, err := os.ReadFile(file)
	if err != nil {
		u.fail("the parameter tls_ca: %v", err)
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		u.fail("the parameter tls_ca: %s contains no certificate in PEM form", file)
	}
	return pool
}
