-- Is end-lock.sql if a certain connection has the named lock. If another has it by now, no thread is found.
KILL CONNECTION IF(IS_USED_LOCK({lock}) = {token}, {token}, NULL)
