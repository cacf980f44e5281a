-- Whether the row may be taken: the lease has ended, and the name is not kept for claims that wait for its named lock.
-- A name is kept if it was given back, or broken, and a claim had to wait for it less than a second ago. They need
-- milliseconds; if they do not come, a frozen process has their named lock, or one that has gone. Where a lease has
-- just ended, any claim may take the name.
expires <= {now} AND ({via} <> 1 OR expires >= 0 OR ABS({now} - waited) >= 1000000)
