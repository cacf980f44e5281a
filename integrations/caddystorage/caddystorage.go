// Package caddystorage is a storage module of Caddy: the certificates are in any other
// storage module, the locks on any backend of distlock. Several Caddys that share the
// storage then ask for each certificate once, also where the storage cannot lock well,
// such as a folder on NFS.
//
//	xcaddy build --with github.com/distlock-go/distlock/integrations/caddystorage
//
// In the Caddyfile:
//
//	{
//		storage distlock {env.DISTLOCK_URL} {
//			storage file_system /mnt/caddy
//		}
//	}
package caddystorage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/certmagic"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
	"github.com/distlock-go/distlock/integrations/certmagiclock"
)

func init() { caddy.RegisterModule(Storage{}) }

// openTime bounds the connection to the backend: a Caddy that cannot lock does not start.
const openTime = 30 * time.Second

// Storage has the files of another storage module, and locks on a backend of distlock. All
// Caddys with the same files must have the same backend.
type Storage struct {
	// URL is the backend, "redis://localhost:6379" say. Placeholders such as
	// {env.DISTLOCK_URL} keep its password out of the configuration.
	URL string `json:"url"`

	// StorageRaw is the storage module with the files. The default is that of Caddy.
	StorageRaw json.RawMessage `json:"storage,omitempty" caddy:"namespace=caddy.storage inline_key=module"`

	files  certmagic.Storage
	url    string // without placeholders; "" if nothing was opened
	locker *shared
}

var (
	_ caddy.Provisioner      = (*Storage)(nil)
	_ caddy.CleanerUpper     = (*Storage)(nil)
	_ caddy.StorageConverter = (*Storage)(nil)
	_ caddyfile.Unmarshaler  = (*Storage)(nil)
)

// CaddyModule implements caddy.Module.
func (Storage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.storage.distlock", New: func() caddy.Module { return new(Storage) }}
}

// lockers has a Locker for each URL. Caddy loads a new configuration before it ends the
// old one, and a certificate that is being issued meanwhile must not lose its lock. So the
// Locker is closed when no configuration has its URL any more.
var lockers = caddy.NewUsagePool()

type shared struct{ distlock.Locker }

// Destruct implements caddy.Destructor. It frees the locks that are held.
func (s *shared) Destruct() error { return s.Close() }

// Provision implements caddy.Provisioner.
func (s *Storage) Provision(ctx caddy.Context) error {
	s.files = caddy.DefaultStorage
	if s.StorageRaw != nil {
		module, err := ctx.LoadModule(s, "StorageRaw")
		if err != nil {
			return fmt.Errorf("loading the storage module: %w", err)
		}
		if s.files, err = module.(caddy.StorageConverter).CertMagicStorage(); err != nil {
			return fmt.Errorf("creating the storage: %w", err)
		}
	}
	url, err := caddy.NewReplacer().ReplaceOrErr(s.URL, true, true)
	if err != nil {
		return err
	}
	locker, _, err := lockers.LoadOrNew(url, func() (caddy.Destructor, error) {
		ctx, cancel := context.WithTimeout(ctx, openTime)
		defer cancel()
		l, err := backends.Open(ctx, url)
		return &shared{l}, err
	})
	if err != nil {
		return err
	}
	s.url, s.locker = url, locker.(*shared)
	return nil
}

// Cleanup implements caddy.CleanerUpper.
func (s *Storage) Cleanup() error {
	if s.locker == nil {
		return nil
	}
	_, err := lockers.Delete(s.url)
	return err
}

// CertMagicStorage implements caddy.StorageConverter.
func (s *Storage) CertMagicStorage() (certmagic.Storage, error) {
	if s.locker == nil {
		return nil, errors.New("the module is not provisioned")
	}
	return certmagiclock.Graft(s.files, s.locker), nil
}

// UnmarshalCaddyfile implements caddyfile.Unmarshaler. The syntax is
//
//	distlock <url> {
//		storage <module> ...
//	}
func (s *Storage) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the name of this module
	if !d.AllArgs(&s.URL) {
		return d.ArgErr()
	}
	for d.NextBlock(0) {
		if d.Val() != "storage" {
			return d.Errf("unrecognized parameter '%s'", d.Val())
		}
		if s.StorageRaw != nil {
			return d.Err("storage already set")
		}
		if !d.NextArg() {
			return d.ArgErr()
		}
		name := d.Val()
		module, err := caddyfile.UnmarshalModule(d, "caddy.storage."+name)
		if err != nil {
			return err
		}
		if _, ok := module.(caddy.StorageConverter); !ok {
			return d.Errf("%s is no storage module", name)
		}
		s.StorageRaw = caddyconfig.JSONModuleObject(module, "module", name, nil)
	}
	return nil
}
