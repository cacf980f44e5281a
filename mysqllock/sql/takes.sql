-- Whether this claim takes the row: it is its own already, or free; and the claim was not undone.
((owner = {owner} OR {free}) AND LOCATE({owner}, undone) = 0)
