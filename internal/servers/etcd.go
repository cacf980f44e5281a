package servers

import (
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"strconv"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

var etcdRecipe = recipe{
	kind:  Etcd,
	port:  "2379",
	image: "quay.io/coreos/etcd:" + etcdVersion(),
	local: func(ctx context.Context, at site) (launch, error) {
		path, err := findEtcd(ctx, at.dir)
		if err != nil {
			return launch{}, err
		}
		url := "http://" + at.addr()
		return launch{name: "etcd", path: path, args: etcdArgs(filepath.Join(at.dir, "data"), url, url)}, nil
	},
	container: func(at site) containerSpec {
		args := etcdArgs("/var/lib/etcd/data", "http://0.0.0.0:2379", "http://"+at.addr())
		return containerSpec{cmd: append([]string{"/usr/local/bin/etcd"}, args...)}
	},
	url:   func(at site) endpoint { return endpoint{scheme: "etcd", hosts: at.addr()} },
	probe: probeEtcd,
}

// etcdArgs is a cluster of one. No other member ever dials its peer address, so that may be any port. Without fsync
// a killed etcd still finds its log and its database as it wrote them, in the page cache. Only a power cut could
// reorder the two.
func etcdArgs(data, listen, advertise string) []string {
	const nobody = "http://127.0.0.1:0"
	return []string{
		"--name=distlock",
		"--data-dir=" + data,
		"--listen-client-urls=" + listen,
		"--advertise-client-urls=" + advertise,
		"--listen-peer-urls=" + nobody,
		"--initial-advertise-peer-urls=" + nobody,
		"--initial-cluster=distlock=" + nobody,
		"--unsafe-no-fsync",
		"--log-level=warn",
	}
}

// findEtcd is the etcd in PATH if it is new enough, else one built from its module. Distributions still ship 3.4.
// Its leases could be revoked while alive (etcd issues 12528 and 15247).
func findEtcd(ctx context.Context, dir string) (string, error) {
	if path, ok := findProgram("etcd"); ok {
		out, err := RunTool(ctx, dir, path, "--version")
		if err != nil {
			return "", err
		}
		if recentEtcd(string(out)) {
			return path, nil
		}
	}
	return buildEtcd(ctx)
}

var etcdVersionLine = regexp.MustCompile(`etcd Version: (\d+)\.(\d+)`)

func recentEtcd(versionOutput string) bool {
	found := etcdVersionLine.FindStringSubmatch(versionOutput)
	if found == nil {
		return false
	}
	major, _ := strconv.Atoi(found[1])
	minor, _ := strconv.Atoi(found[2])
	return major > 3 || major == 3 && minor >= 5
}

func probeEtcd(ctx context.Context, at endpoint) (string, error) {
	user, password := at.login()
	config := clientv3.Config{
		Endpoints: at.addrs(),
		Username:  user,
		Password:  password,
		Context:   ctx,
		Logger:    zap.NewNop(), // that a server is not up yet is no news
	}
	client, err := clientv3.New(config)
	if err != nil {
		return "", err
	}
	defer client.Close()
	// A read goes through the leader: any answer, even a refusal, proves that there is one.
	_, err = client.Get(ctx, "health")
	if err != nil && !errors.Is(err, rpctypes.ErrPermissionDenied) && !errors.Is(err, rpctypes.ErrUserEmpty) {
		return "", err
	}
	status, err := client.Status(ctx, at.addr())
	if errors.Is(err, rpctypes.ErrUserEmpty) {
		return "", nil // it serves clients that log in
	}
	if err != nil {
		return "", err
	}
	return status.Version, nil
}
