package backends_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/distlock-go/distlock"
	"github.com/distlock-go/distlock/backends"
)

func ExampleOpen() {
	ctx := context.Background()
	// redis://, mysql://, postgres://, zk:// and etcd:// ask a server; mem:// is in this process.
	locker, err := backends.Open(ctx, "mem://orders?ttl=10s")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
	lock, err := locker.Lock(ctx, "orders/42")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ten seconds at the most:", time.Until(lock.Deadline()) <= 10*time.Second)
	// Output: ten seconds at the most: true
}

func ExampleConfig_Open() {
	var c backends.Config
	err := yaml.Unmarshal([]byte("url: mem://jobs\nttl: 20s\nrequire: [durable]\n"), &c)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = c.Open(context.Background())
	fmt.Println("the memory of a process is not durable:", errors.Is(err, distlock.ErrUnsupported))
	// Output: the memory of a process is not durable: true
}

func ExampleFromEnv() {
	os.Setenv("DISTLOCK_URL", "redis://app:secret@localhost")
	os.Setenv("DISTLOCK_TTL", "20s")
	defer os.Unsetenv("DISTLOCK_URL")
	defer os.Unsetenv("DISTLOCK_TTL")
	c, err := backends.FromEnv()
	fmt.Println(c, err) // the password is not shown
	// Output: url=redis://app:xxxxx@localhost ttl=20s <nil>
}
