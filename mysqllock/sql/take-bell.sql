-- Takes a bell if nobody has it: 1 or 0. Several of these make one request.
COALESCE(GET_LOCK({bell}, 0), 0)
