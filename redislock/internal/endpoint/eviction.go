package endpoint

import "log/slog"

// EvictionPolicy is the setting that LogEviction wants.
const EvictionPolicy = "maxmemory-policy"

// LogEviction tells of a server that may evict locks, as far as it shows that.
func LogEviction(policy string, err error, logger *slog.Logger) {
	switch {
	// A server may refuse CONFIG GET. That says nothing about its setting, so it is no error.
	case policy == "":
		logger.Info("this Redis does not show its maxmemory-policy: see to it that it is noeviction, or locks may be evicted",
			"err", err)
	case policy != "noeviction":
		logger.Warn("this Redis may evict locks when its memory is full: set maxmemory-policy to noeviction",
			EvictionPolicy, policy)
	}
}
