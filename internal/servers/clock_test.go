package servers

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// TestJump: the server's clock does what it is told, at once, over a restart as well, and others' stay.
func TestJump(t *testing.T) {
	t.Parallel()
	for kind, now := range map[Kind]func(*testing.T, *Server) time.Time{Redis: redisTime, MySQL: mysqlTime, Postgres: postgresTime} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := ClockedForTest(t, kind)
			ahead := time.Duration(0)
			for _, d := range []time.Duration{0, time.Hour, -2 * time.Hour, 90 * time.Minute} {
				if err := s.Jump(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				ahead += d
				before := time.Now()
				got := now(t, s)
				if got.Before(before.Add(ahead-time.Second)) || got.After(time.Now().Add(ahead+time.Second)) {
					t.Errorf("after a jump by %v the clock shows %v, want %v ahead of %v", d, got, ahead, before)
				}
			}
			if err := errors.Join(s.Kill(t.Context()), s.Restart(t.Context())); err != nil {
				t.Fatal(err)
			}
			if got := now(t, s); time.Until(got) < ahead-time.Minute {
				t.Errorf("restarted, the clock shows %v, want %v ahead", got, ahead)
			}
		})
	}
}

func TestJumpWithoutClock(t *testing.T) {
	if err := new(Server).Jump(t.Context(), time.Hour); !errors.Is(err, errNoClock) {
		t.Errorf("got %v", err)
	}
	for _, kind := range []Kind{ZooKeeper, Etcd} {
		if _, err := StartClocked(t.Context(), kind); err == nil || errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: got %v", kind, err)
		}
	}
}

func postgresTime(t *testing.T, s *Server) (at time.Time) {
	conn, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&at); err != nil {
		t.Fatal(err)
	}
	return at
}

func redisTime(t *testing.T, s *Server) time.Time {
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer c.Close()
	at, err := c.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func mysqlTime(t *testing.T, s *Server) time.Time {
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName = "tcp", s.url.addr(), s.url.path()
	config.User, config.Passwd = s.url.login()
	db, err := sql.Open("mysql", config.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var unix float64
	if err := db.QueryRowContext(t.Context(), "SELECT UNIX_TIMESTAMP(NOW(6))").Scan(&unix); err != nil {
		t.Fatal(err)
	}
	return time.UnixMicro(int64(unix * 1e6))
}
