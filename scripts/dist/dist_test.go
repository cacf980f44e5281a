package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"testing"
	"time"
)

var (
	packed = []file{{"distlock", 0o755, []byte("program")}, {"man/man1/distlock.1", 0o644, []byte("page")}}
	commit = time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)
)

// What is unpacked is what was packed, and a second archive is the same.
func TestPack(t *testing.T) {
	for _, os := range []string{"linux", "windows"} {
		name, data, err := pack("distlock_v1", target{os, "amd64"}, packed, commit)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		if _, again, err := pack("distlock_v1", target{os, "amd64"}, packed, commit); err != nil || !bytes.Equal(data, again) {
			t.Errorf("%s is another the second time (error %v)", name, err)
		}
		unpack := untar
		if os == "windows" {
			unpack = unzip
		}
		got := unpack(t, data)
		for i, f := range packed {
			if i >= len(got) || got[i].name != "distlock_v1/"+f.name || got[i].mode != f.mode || !bytes.Equal(got[i].data, f.data) {
				t.Errorf("%s: got %+v, want %+v", name, got, packed)
				break
			}
		}
	}
}

func untar(t *testing.T, data []byte) (files []file) {
	zr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(commit) {
			t.Errorf("%s has the time %v", h.Name, h.ModTime)
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file{h.Name, fs.FileMode(h.Mode), text})
	}
}

func unzip(t *testing.T, data []byte) (files []file) {
	zr, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range zr.File {
		if !f.Modified.Equal(commit) {
			t.Errorf("%s has the time %v", f.Name, f.Modified)
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file{f.Name, f.Mode(), text})
	}
	return files
}
