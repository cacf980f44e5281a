package caddystorage

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/distlock-go/distlock/internal/servers"
)

// The environment of a process that is a Caddy: its storage as in a Caddyfile, and the
// folder where it leaves what it has done.
const (
	envStorage = "CADDYSTORAGE_TEST_STORAGE"
	envFolder  = "CADDYSTORAGE_TEST_FOLDER"
)

const caddys = 3

func TestMain(m *testing.M) {
	if folder := os.Getenv(envFolder); folder != "" {
		if err := obtain(os.Getenv(envStorage), folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Processes that share a folder and a backend want a certificate of one name. It is issued
// once.
func TestOneCertificate(t *testing.T) {
	servers.Each(t, func(t *testing.T, url string) {
		files, folder := t.TempDir(), t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for range caddys {
			cmd := exec.CommandContext(ctx, os.Args[0])
			cmd.Env = append(os.Environ(), envFolder+"="+folder,
				fmt.Sprintf("%s=distlock %s {\n storage file_system %q\n}", envStorage, url, filepath.ToSlash(files)))
			wg.Go(func() {
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
		wg.Wait()
		if issued := count(folder, "issued"); issued != 1 {
			t.Errorf("%d certificates were issued, want 1", issued)
		}
	})
}

// count returns how many files of a kind the processes have left.
func count(folder, kind string) int {
	found, _ := filepath.Glob(filepath.Join(folder, kind+"-*"))
	return len(found)
}

func leave(folder, kind string) error {
	return os.WriteFile(filepath.Join(folder, fmt.Sprint(kind, "-", os.Getpid())), nil, 0o600)
}

// obtain is what one process does.
func obtain(text, folder string) error {
	storage, err := run(text)
	if err != nil {
		return err
	}
	defer caddy.Stop()
	if err := leave(folder, "ready"); err != nil {
		return err
	}
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
		Logger:           zap.NewNop(),
	})
	defer cache.Stop()
	config = certmagic.New(cache, certmagic.Config{Storage: storage, Issuers: []certmagic.Issuer{issuer{folder}}, Logger: zap.NewNop()})
	return config.ObtainCertSync(context.Background(), "example.com")
}

// issuer is a certificate authority that leaves a file for each certificate.
type issuer struct{ folder string }

func (issuer) IssuerKey() string { return "test" }

// Issue waits for the other processes: while it does, they want the certificate, too.
func (i issuer) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	for count(i.folder, "ready") < caddys {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	if err := leave(i.folder, "issued"); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: csr.DNSNames, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, csr.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}
