package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-zookeeper/zk"
)

var zookeeperRecipe = recipe{
	kind:  ZooKeeper,
	port:  "2181",
	image: "zookeeper:3.9",
	local: localZooKeeper,
	container: func(site) containerSpec {
		return containerSpec{
			env:   map[string]string{"JVMFLAGS": strings.Join(zookeeperJVM, " ")},
			files: map[string]string{"/conf/zoo.cfg": zookeeperConfig + "dataDir=/data\nclientPort=2181\n"},
		}
	},
	url:   func(at site) endpoint { return endpoint{scheme: "zk", hosts: at.addr()} },
	probe: probeZooKeeper,
}

// zookeeperConfig: sessions are counted in ticks, by default from 2 to 20 of 2 s. A tick of 200 ms lets checks have
// sessions that expire in less than a second, and the wide maximum keeps long ones as asked.
const zookeeperConfig = `tickTime=200
minSessionTimeout=400
maxSessionTimeout=120000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr,mntr,ruok
`

// zookeeperJVM keeps a JVM small and quick to start beside others. It removes empty containers within a second (a
// minute by default), and does not wait for fsync.
var zookeeperJVM = []string{
	"-Xmx256m",
	"-XX:+UseSerialGC",
	"-XX:TieredStopAtLevel=1",
	"-XX:-UsePerfData",
	"-Dznode.container.checkIntervalMs=1000",
	"-Dzookeeper.forceSync=no",
	"-Dzookeeper.preAllocSize=1024", // KiB; the default writes 64 MiB of zeros for each start
	// Of an ensemble without a quorum. By default they double up to a minute, and as long may
	// an election take after the quorum is back.
	"-Dzookeeper.fastleader.maxNotificationInterval=1000",
}

// zookeeperLogback quiets releases with the logger logback. Without a configuration it writes every detail. Debian's
// build logs by slf4j-simple and takes a system property instead.
const zookeeperLogback = `<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{0}: %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
`

func localZooKeeper(_ context.Context, at site) (launch, error) {
	java, ok := findJava()
	if !ok {
		return launch{}, unavailable{"java is not installed"}
	}
	classes, ok := zookeeperClasses()
	if !ok {
		return launch{}, unavailable{"ZooKeeper is not installed (set ZOOKEEPER_HOME to an unpacked release)"}
	}
	if err := os.WriteFile(filepath.Join(at.dir, "logback.xml"), []byte(zookeeperLogback), 0o600); err != nil {
		return launch{}, err
	}
	config := filepath.Join(at.dir, "zoo.cfg")
	text := zookeeperConfig + fmt.Sprintf("dataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\n",
		filepath.Join(at.dir, "data"), at.port)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return launch{}, err
	}
	args := append([]string{
		"-Djava.io.tmpdir=" + at.dir,
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", at.dir + ":" + classes,
	}, zookeeperJVM...)
	args = append(args, "org.apache.zookeeper.server.quorum.QuorumPeerMain", config)
	return launch{name: "ZooKeeper by java", path: java, args: args}, nil
}

func findJava() (string, bool) {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		return findProgram(filepath.Join(home, "bin", "java"))
	}
	// Homebrew's java is not linked into PATH; the java that macOS has in PATH only asks to install one.
	for _, dir := range []string{"/opt/homebrew/opt/openjdk/bin", "/usr/local/opt/openjdk/bin"} {
		if path, ok := findProgram(filepath.Join(dir, "java")); ok {
			return path, true
		}
	}
	return findProgram("java")
}

// zookeeperClasses is the class path of an installed ZooKeeper: an unpacked release, Debian's package, or Homebrew's.
// The jar of Debian's package names the jars it needs, except for a logger and two of those that TLS takes.
func zookeeperClasses() (string, bool) {
	var homes []string
	if home := os.Getenv("ZOOKEEPER_HOME"); home != "" {
		homes = append(homes, filepath.Join(home, "lib"))
	} else {
		const debian = "/usr/share/java/"
		if _, err := os.Stat(debian + "zookeeper.jar"); err == nil {
			return debian + "zookeeper.jar:" + debian + "slf4j-simple.jar:" +
				debian + "netty-codec.jar:" + debian + "netty-resolver.jar", true
		}
		homes = append(homes, "/opt/homebrew/opt/zookeeper/libexec/lib", "/opt/homebrew/opt/zookeeper/libexec",
			"/usr/local/opt/zookeeper/libexec/lib", "/usr/local/opt/zookeeper/libexec")
	}
	for _, home := range homes {
		if jars, err := filepath.Glob(filepath.Join(home, "zookeeper-[0-9]*.jar")); err == nil && len(jars) > 0 {
			return filepath.Join(home, "*"), true
		}
	}
	return "", false
}

func probeZooKeeper(ctx context.Context, at endpoint) (string, error) {
	// A first look without the client. A connection of the client, made while the server still loads its data, is
	// neither served nor closed. The next one comes only after a timeout.
	status, err := askZooKeeper(ctx, at.addr())
	if err != nil {
		return "", err
	}
	if strings.Contains(status, "not currently serving") {
		return "", errors.New("it is not serving requests yet")
	}
	conn, events, err := zk.Connect(at.addrs(), probeBound, zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	for up := false; !up; {
		select {
		case e := <-events:
			up = e.State == zk.StateHasSession
		case <-ctx.Done():
			return "", fmt.Errorf("no session: %w", ctx.Err())
		}
	}
	// The client's calls take no context; closing the connection is what ends them.
	stop := context.AfterFunc(ctx, conn.Close)
	defer stop()
	if _, _, err := conn.Exists("/"); err != nil && !errors.Is(err, zk.ErrNoAuth) {
		return "", err
	}
	version, told := strings.CutPrefix(status, "Zookeeper version: ")
	if !told {
		return "", nil
	}
	if end := strings.IndexAny(version, "-, "); end >= 0 {
		version = version[:end] // the build's commit and date follow
	}
	return version, nil
}

// quiet is a logger that says nothing: that a server is not up yet is no news.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// askZooKeeper returns the first line of the answer to the four-letter word srvr. A server may have switched it off and
// answer with a refusal: that is no error.
func askZooKeeper(ctx context.Context, addr string) (string, error) {
	text, err := fourLetters(ctx, addr, "srvr")
	line, _, _ := strings.Cut(text, "\n")
	if line != "" {
		return strings.TrimSpace(line), nil // the refusals end without a line feed
	}
	return "", cmp.Or(err, io.EOF)
}

// fourLetters returns the whole answer to one of ZooKeeper's four-letter words.
func fourLetters(ctx context.Context, addr, word string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline() // zero, if none, is no deadline to conn either
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte(word)); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	return string(text), err
}
