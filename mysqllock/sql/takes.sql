-- Whether this claim takes the row: it is its own already, or the lease has ended and the name is not kept for those
-- who wait at the doorbell, whose turn it is; and the claim was not undone.
((owner = {owner} OR expires <= {now} AND ({via} <> 1 OR MOD(bell, 16) = 0)) AND LOCATE({owner}, undone) = 0)
