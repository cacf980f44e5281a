package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// account stands for the resource that the lock protects: a balance in a service
// of its own, that other processes read and then write. It knows nothing of the
// lock, but keeps the highest fencing token it has seen and refuses lower ones. It also
// counts its writes, for those that say which version they have read.
type account struct {
	mu      sync.Mutex
	balance int
	version int // writes so far
	fence   int64
	refused int // writes, for a stale token
}

// errStale is what a holder gets that has lost its lock to a later one.
var errStale = errors.New("refused: a later holder of the lock has been here")

// errChanged is what a writer gets that has named a version which is not the last one.
var errChanged = errors.New("another has written since the balance was read")

// exchange is the body of requests and of replies. A Token of 0 is that of nobody:
// of workers that take no lock.
type exchange struct {
	Balance int
	Token   int64
	Version *int // of a write: the one that it replaces; nil: whichever is there
}

// admit takes note of a token, and says whether it is not stale. Reads pass here as
// well as writes. If only writes did, a stale write could come between the read and the
// write of the present holder. The holder would then overwrite it without knowing.
func (a *account) admit(token int64) bool {
	if token < a.fence {
		return false
	}
	a.fence = token
	return true
}

// state returns the balance, and how many writes were refused.
func (a *account) state() (balance, refused int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.balance, a.refused
}

// ServeHTTP answers GET with the balance and sets it on PUT.
func (a *account) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var x exchange
	if err := json.NewDecoder(r.Body).Decode(&x); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !a.admit(x.Token):
		if r.Method == http.MethodPut {
			a.refused++
		}
		w.WriteHeader(http.StatusConflict)
		return
	case r.Method == http.MethodPut && x.Version != nil && *x.Version != a.version:
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	case r.Method == http.MethodPut:
		a.balance = x.Balance
		a.version++
	}
	version := a.version
	json.NewEncoder(w).Encode(exchange{a.balance, a.fence, &version}) // a lost reply shows at the client
}

// open serves the account on a loopback port until stop is called.
func (a *account) open() (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: a}
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.Serve(listener) // returns when the server is closed
	}()
	return "http://" + listener.Addr().String(), func() {
		server.Close()
		<-served
	}, nil
}

// remote is the account as a worker sees it: the URL of its service.
type remote string

func (r remote) read(ctx context.Context, token int64) (balance, version int, err error) {
	x, err := r.do(ctx, http.MethodGet, exchange{Token: token})
	if err != nil {
		return 0, 0, err
	}
	return x.Balance, *x.Version, nil
}

// write sets the balance. If version is not nil, it must be the account's last one.
func (r remote) write(ctx context.Context, balance int, token int64, version *int) error {
	_, err := r.do(ctx, http.MethodPut, exchange{balance, token, version})
	return err
}

func (r remote) do(ctx context.Context, method string, x exchange) (exchange, error) {
	body, err := json.Marshal(x)
	if err != nil {
		return exchange{}, err
	}
	request, err := http.NewRequestWithContext(ctx, method, string(r), bytes.NewReader(body))
	if err != nil {
		return exchange{}, err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return exchange{}, err
	}
	defer reply.Body.Close()
	switch reply.StatusCode {
	case http.StatusOK:
		err = json.NewDecoder(reply.Body).Decode(&x)
		return x, err
	case http.StatusConflict:
		return exchange{}, errStale
	case http.StatusPreconditionFailed:
		return exchange{}, errChanged
	}
	return exchange{}, fmt.Errorf("the account answers %s", reply.Status)
}
