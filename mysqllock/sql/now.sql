-- The server's clock, in microseconds since 1970 in UTC, whatever the session's time_zone.
--
-- UTC_TIMESTAMP is read once, when the statement starts. That is what makes the parts of a statement agree with each
-- other in any order of evaluation, and replicas with their source. SYSDATE moves while a statement waits for a row,
-- but then every mention of it is another instant: "expired" could be false where the token is computed and true
-- where the owner is. A statement that waited errs on the safe side here: it judges expiry by an earlier moment, and
-- it grants a lease counted from that moment, which Try notices and renews. And one that is applied long after its
-- caller has left leaves a lease that has run down meanwhile, where SYSDATE would leave a full one.
TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
