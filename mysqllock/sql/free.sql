-- Whether anybody may take the row: the lease has ended and the name is not kept for those at the doorbell. A name is
-- kept if it was given back and somebody had to wait for it less than a second ago. They need milliseconds; if they do
-- not come, their bell is with somebody who is frozen, or gone. What was not given back is anybody's as soon as the
-- lease has ended.
expires <= {now} AND ({via} <> 1 OR expires >= 0 OR ABS({now} - waited) >= 1000000)
